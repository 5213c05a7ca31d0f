#include "tests/cpu/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>

namespace flashcore {
namespace {

using Real = long double;
constexpr Real kMinusInfinity = -std::numeric_limits<Real>::infinity();

// Reads tensors by index, whatever their strides; an extent of 1 stands for any.
class Reader {
 public:
  explicit Reader(const bench::HostProblem& host) : host_(host) {}

  bool has(std::string_view name) const { return host_.has(name); }

  Real at(std::string_view name, std::initializer_list<int64_t> index) const {
    const bench::HostTensor& tensor = host_.at(name);
    int64_t element = 0;
    size_t d = 0;
    for (const int64_t i : index) {
      const int64_t extent = tensor.desc().shape[d++];
      element = element * extent + (extent == 1 ? 0 : i);
    }
    return tensor.get(element);
  }
  int64_t integer(std::string_view name, int64_t i) const {
    return static_cast<int64_t>(at(name, {i}));
  }

 private:
  const bench::HostProblem& host_;
};

// One batch entry: its rows in Q, O and K, V, and how many of them are in use.
struct Entry {
  int64_t batch, first_query, rows, queries, first_key, keys;
  int64_t diagonal;  // query i lies on key i + diagonal
};

class Oracle {
 public:
  explicit Oracle(const bench::HostProblem& host)
      : problem_(host.problem),
        host_(host),
        read_(host),
        packed_(host.problem.cu_seqlens_q.has_value()),
        heads_(host.problem.q.shape[1]),
        kv_heads_(host.problem.k.shape[1]),
        width_(host.problem.q.shape[packed_ ? 2 : 3]),
        value_width_(host.problem.v.shape[packed_ ? 2 : 3]) {}

  OracleResult run() {
    result_.o.assign(static_cast<size_t>(host_.at("o").elements()), std::nanl(""));
    result_.lse.assign(result_.o.size() / static_cast<size_t>(value_width_), std::nanl(""));
    result_.o_scale.assign(result_.o.size(), 1);
    for (const auto& [name, values] :
         {std::pair{"amax_o", &result_.amax_o}, {"amax_s", &result_.amax_s}}) {
      if (read_.has(name)) values->assign(static_cast<size_t>(host_.at(name).elements()), 0);
    }
    const int64_t batch = packed_ ? problem_.cu_seqlens_q->shape[0] - 1 : problem_.q.shape[0];
    for (int64_t b = 0; b < batch; ++b) {
      const Entry entry = entry_of(b);
      for (int64_t h = 0; h < heads_; ++h) attend(entry, h);
    }
    return result_;
  }

 private:
  Entry entry_of(int64_t b) const {
    Entry e{.batch = b,
            .first_query = 0,
            .rows = problem_.q.shape[2],
            .queries = 0,
            .first_key = 0,
            .keys = problem_.k.shape[2],
            .diagonal = 0};
    if (packed_) {
      e.first_query = read_.integer("cu_seqlens_q", b);
      e.rows = read_.integer("cu_seqlens_q", b + 1) - e.first_query;
      e.first_key = read_.integer("cu_seqlens_kv", b);
      e.keys = read_.integer("cu_seqlens_kv", b + 1) - e.first_key;
    }
    e.queries = e.rows;
    if (read_.has("seqlens_q")) e.queries = std::min(e.rows, read_.integer("seqlens_q", b));
    if (read_.has("seqlens_kv")) e.keys = std::min(e.keys, read_.integer("seqlens_kv", b));
    if (problem_.alignment == Alignment::bottom_right) e.diagonal = e.keys - e.queries;
    if (problem_.alignment == Alignment::given) {
      e.diagonal =
          read_.has("causal_offsets") ? read_.integer("causal_offsets", b) : problem_.causal_offset;
    }
    return e;
  }

  Real row(std::string_view name, const Entry& e, int64_t h, int64_t first, int64_t i,
           int64_t d) const {
    return packed_ ? read_.at(name, {first + i, h, d}) : read_.at(name, {e.batch, h, i, d});
  }

  // Step 4: nothing where the pair is removed.
  bool removed(const Entry& e, int64_t h, int64_t i, int64_t j) const {
    if (i >= e.queries) return true;
    const int64_t distance = j - (i + e.diagonal);
    if (problem_.causal && distance > 0) return true;
    if (problem_.window_right >= 0 && distance > problem_.window_right) return true;
    if (problem_.window_left >= 0 && -distance > problem_.window_left) return true;
    if (read_.has("mask") && read_.at("mask", {e.batch, h, i, j}) == 0) return true;
    return read_.has("bias") && read_.at("bias", {e.batch, h, i, j}) == kMinusInfinity;
  }

  // Steps 1 to 3.
  Real score(const Entry& e, int64_t h, int64_t i, int64_t j) const {
    const int64_t kv_head = h / (heads_ / kv_heads_);
    Real s = 0;
    for (int64_t d = 0; d < width_; ++d) {
      s += row("q", e, h, e.first_query, i, d) * row("k", e, kv_head, e.first_key, j, d);
    }
    s *= problem_.softmax_scale.value_or(
        static_cast<float>(1 / std::sqrt(static_cast<double>(width_))));
    if (read_.has("q_scale")) s *= read_.at("q_scale", {e.batch, h});
    if (read_.has("k_scale")) s *= read_.at("k_scale", {e.batch, kv_head, block_of(j)});
    if (problem_.softcap > 0) s = problem_.softcap * std::tanh(s / problem_.softcap);
    if (read_.has("bias")) s += read_.at("bias", {e.batch, h, i, j});
    if (read_.has("alibi_slopes")) {
      const Real slope = problem_.alibi_slopes->rank == 1 ? read_.at("alibi_slopes", {h})
                                                          : read_.at("alibi_slopes", {e.batch, h});
      s += slope * -static_cast<Real>(std::abs(j - (i + e.diagonal)));
    }
    return s;
  }

  int64_t block_of(int64_t j) const {
    return problem_.kv_scale_block == 0 ? 0 : j / problem_.kv_scale_block;
  }

  void attend(const Entry& e, int64_t h) {
    const auto keys = static_cast<size_t>(e.keys);
    const auto rows = static_cast<size_t>(e.rows);
    // The scores; -inf where there is none.
    std::vector<std::vector<Real>> s(rows, std::vector<Real>(keys, kMinusInfinity));
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < keys; ++j) {
        const auto query = static_cast<int64_t>(i), key = static_cast<int64_t>(j);
        if (!removed(e, h, query, key)) s[i][j] = score(e, h, query, key);
      }
    }
    for (size_t i = 0; i < rows; ++i) finish_row(e, h, static_cast<int64_t>(i), s[i]);
  }

  // Takes a number of entry b and head h into the largest ones.
  void note(std::string_view name, std::vector<Real>& values, int64_t b, int64_t h, Real number) {
    if (values.empty()) return;
    const auto& shape = host_.at(name).desc().shape;
    Real& value =
        values[static_cast<size_t>((shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : h))];
    if (!std::isnan(value) && !(number <= value)) value = number;
  }

  // Steps 5 to 7 of one row.
  void finish_row(const Entry& e, int64_t h, int64_t i, const std::vector<Real>& s) {
    const Real sink = read_.has("sinks") ? read_.at("sinks", {h}) : kMinusInfinity;
    Real around = sink;  // the largest; it cancels
    for (const Real score : s) {
      if (std::isnan(score) || score > around) around = score;
    }
    Real denominator = sink == kMinusInfinity ? 0 : std::exp(sink - around);
    bool any = false;
    for (const Real score : s) {
      if (score == kMinusInfinity) continue;
      any = true;
      denominator += std::exp(score - around);
    }
    for (const Real score : s) {
      if (score == kMinusInfinity) continue;
      note("amax_s", result_.amax_s, e.batch, h, std::exp(score - around) / denominator);
    }
    const int64_t kv_head = h / (heads_ / kv_heads_);
    const size_t row_index = index_of_row(e, h, i);
    for (int64_t d = 0; d < value_width_; ++d) {
      Real sum = 0;
      for (size_t j = 0; any && j < s.size(); ++j) {
        if (s[j] == kMinusInfinity) continue;
        const auto key = static_cast<int64_t>(j);
        Real p = std::exp(s[j] - around) / denominator;
        if (problem_.dropout_p > 0) p *= kept(e, h, i, key);
        Real value = row("v", e, kv_head, e.first_key, key, d);
        if (read_.has("v_scale")) value *= read_.at("v_scale", {e.batch, kv_head, block_of(key)});
        sum += p * value;
      }
      const size_t element = row_index * static_cast<size_t>(value_width_) + static_cast<size_t>(d);
      result_.o[element] = sum;
      if (read_.has("o_scale")) result_.o_scale[element] = read_.at("o_scale", {e.batch, h});
      note("amax_o", result_.amax_o, e.batch, h, std::abs(sum));
    }
    result_.lse[row_index] = any || sink != kMinusInfinity ? around + std::log(denominator) : sink;
  }

  // 0 for a dropped pair, otherwise what makes up for the dropped ones.
  Real kept(const Entry& e, int64_t h, int64_t i, int64_t j) const {
    const float p = problem_.dropout_p;
    const auto [seed, offset] = bench::dropout_draw(host_);
    if (!dropout_keeps(seed, offset, p, e.batch, h, i, j)) return 0;
    return 1.0f / (1.0f - p);
  }

  // Of O without its last dimension, and of LSE.
  size_t index_of_row(const Entry& e, int64_t h, int64_t i) const {
    return static_cast<size_t>(packed_ ? (e.first_query + i) * heads_ + h
                                       : (e.batch * heads_ + h) * problem_.q.shape[2] + i);
  }

  const Problem& problem_;
  const bench::HostProblem& host_;
  Reader read_;
  bool packed_;
  int64_t heads_, kv_heads_, width_, value_width_;
  OracleResult result_;
};

}  // namespace

OracleResult oracle(const bench::HostProblem& host) { return Oracle(host).run(); }

}  // namespace flashcore
