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

// An optional tensor of a problem: reads it by index, for any strides; an extent of 1 is broadcast.
class Operand {
 public:
  Operand(const bench::HostProblem& host, std::string_view name)
      : tensor_(host.has(name) ? &host.at(name) : nullptr) {}

  explicit operator bool() const { return tensor_ != nullptr; }

  Real operator()(std::initializer_list<int64_t> index) const {
    int64_t element = 0;
    size_t d = 0;
    for (const int64_t i : index) {
      const int64_t extent = tensor_->desc().shape[d++];
      element = element * extent + (extent == 1 ? 0 : i);
    }
    return tensor_->get(element);
  }
  int64_t integer(int64_t i) const { return static_cast<int64_t>((*this)({i})); }

 private:
  const bench::HostTensor* tensor_;
};

// One batch entry: its rows in Q, O, K and V, and the number of rows in use.
struct Entry {
  int64_t batch, first_query, rows, queries, first_key, keys;
  int64_t diagonal;  // query i is aligned with key i + diagonal
};

class Oracle {
 public:
  explicit Oracle(const bench::HostProblem& host)
      : problem_(host.problem),
        host_(host),
        packed_(host.problem.cu_seqlens_q.has_value()),
        heads_(host.problem.q.shape[1]),
        kv_heads_(host.problem.k.shape[1]),
        width_(host.problem.q.shape[packed_ ? 2 : 3]),
        value_width_(host.problem.v.shape[packed_ ? 2 : 3]),
        draw_(bench::dropout_draw(host)) {}

  OracleResult run() {
    result_.o.assign(static_cast<size_t>(host_.at("o").elements()), std::nanl(""));
    result_.lse.assign(result_.o.size() / static_cast<size_t>(value_width_), std::nanl(""));
    result_.o_scale.assign(result_.o.size(), 1);
    for (const auto& [name, values] : {std::pair{"amax_o", &result_.amax_o},
                                       {"amax_s", &result_.amax_s},
                                       {"max_logit", &result_.max_logit}}) {
      const Real least = std::string_view(name) == "max_logit" ? kMinusInfinity : 0;
      if (host_.has(name)) values->assign(static_cast<size_t>(host_.at(name).elements()), least);
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
      e.first_query = cu_seqlens_q_.integer(b);
      e.rows = cu_seqlens_q_.integer(b + 1) - e.first_query;
      e.first_key = cu_seqlens_kv_.integer(b);
      e.keys = cu_seqlens_kv_.integer(b + 1) - e.first_key;
    }
    e.queries = e.rows;
    if (seqlens_q_) e.queries = std::min(e.rows, seqlens_q_.integer(b));
    if (seqlens_kv_) e.keys = std::min(e.keys, seqlens_kv_.integer(b));
    if (problem_.alignment == Alignment::bottom_right) e.diagonal = e.keys - e.queries;
    if (problem_.alignment == Alignment::given) {
      e.diagonal = causal_offsets_ ? causal_offsets_.integer(b) : problem_.causal_offset;
    }
    return e;
  }

  Real row(const Operand& tensor, const Entry& e, int64_t h, int64_t first, int64_t i,
           int64_t d) const {
    return packed_ ? tensor({first + i, h, d}) : tensor({e.batch, h, i, d});
  }

  // Step 4: returns whether the pair is removed.
  bool removed(const Entry& e, int64_t h, int64_t i, int64_t j) const {
    if (i >= e.queries) return true;
    const int64_t distance = j - (i + e.diagonal);
    if (problem_.causal && distance > 0) return true;
    if (problem_.window_right >= 0 && distance > problem_.window_right) return true;
    if (problem_.window_left >= 0 && -distance > problem_.window_left) return true;
    if (mask_ && mask_({e.batch, h, i, j}) == 0) return true;
    return bias_ && bias_({e.batch, h, i, j}) == kMinusInfinity;
  }

  // Steps 1 to 3.
  Real score(const Entry& e, int64_t h, int64_t i, int64_t j) const {
    const int64_t kv_head = h / (heads_ / kv_heads_);
    Real s = 0;
    for (int64_t d = 0; d < width_; ++d) {
      s += row(q_, e, h, e.first_query, i, d) * row(k_, e, kv_head, e.first_key, j, d);
    }
    s *= problem_.softmax_scale.value_or(
        static_cast<float>(1 / std::sqrt(static_cast<double>(width_))));
    if (q_scale_) s *= q_scale_({e.batch, h});
    if (k_scale_) s *= k_scale_({e.batch, kv_head, block_of(j)});
    if (problem_.softcap > 0) s = problem_.softcap * std::tanh(s / problem_.softcap);
    if (bias_) s += bias_({e.batch, h, i, j});
    if (alibi_slopes_) {
      const Real slope =
          problem_.alibi_slopes->rank == 1 ? alibi_slopes_({h}) : alibi_slopes_({e.batch, h});
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
    // The scores; -inf for removed pairs.
    std::vector<std::vector<Real>> s(rows, std::vector<Real>(keys, kMinusInfinity));
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < keys; ++j) {
        const auto query = static_cast<int64_t>(i), key = static_cast<int64_t>(j);
        if (!removed(e, h, query, key)) s[i][j] = score(e, h, query, key);
      }
    }
    for (size_t i = 0; i < rows; ++i) finish_row(e, h, static_cast<int64_t>(i), s[i]);
  }

  // Includes a number of entry b and head h in the largest ones.
  void note(std::string_view name, std::vector<Real>& values, int64_t b, int64_t h, Real number) {
    if (values.empty()) return;
    const auto& shape = host_.at(name).desc().shape;
    Real& value =
        values[static_cast<size_t>((shape[0] == 1 ? 0 : b) * shape[1] + (shape[1] == 1 ? 0 : h))];
    if (!std::isnan(value) && !(number <= value)) value = number;
  }

  // Steps 5 to 7 for one row.
  void finish_row(const Entry& e, int64_t h, int64_t i, const std::vector<Real>& s) {
    const Real sink = sinks_ ? sinks_({h}) : kMinusInfinity;
    Real around = sink;  // the largest score; it cancels
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
      const bool is_infinite = std::isinf(score);
      note("max_logit", result_.max_logit, e.batch, h, is_infinite ? std::nanl("") : score);
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
        Real value = row(v_, e, kv_head, e.first_key, key, d);
        if (v_scale_) value *= v_scale_({e.batch, kv_head, block_of(key)});
        sum += p * value;
      }
      const size_t element = row_index * static_cast<size_t>(value_width_) + static_cast<size_t>(d);
      result_.o[element] = sum;
      if (o_scale_) result_.o_scale[element] = o_scale_({e.batch, h});
      note("amax_o", result_.amax_o, e.batch, h, std::abs(sum));
    }
    result_.lse[row_index] = any ? around + std::log(denominator) : sink;
  }

  // Returns 0 for a dropped pair, otherwise the factor that compensates for dropped ones.
  Real kept(const Entry& e, int64_t h, int64_t i, int64_t j) const {
    const float p = problem_.dropout_p;
    if (!dropout_keeps(draw_.seed, draw_.offset, p, e.batch, h, i, j)) return 0;
    return 1.0f / (1.0f - p);
  }

  // The index of a row in O without its last dimension, and in LSE.
  size_t index_of_row(const Entry& e, int64_t h, int64_t i) const {
    return static_cast<size_t>(packed_ ? (e.first_query + i) * heads_ + h
                                       : (e.batch * heads_ + h) * problem_.q.shape[2] + i);
  }

  const Problem& problem_;
  const bench::HostProblem& host_;
  bool packed_;
  int64_t heads_, kv_heads_, width_, value_width_;
  bench::DropoutDraw draw_;
  Operand q_{host_, "q"};
  Operand k_{host_, "k"};
  Operand v_{host_, "v"};
  Operand mask_{host_, "mask"};
  Operand bias_{host_, "bias"};
  Operand q_scale_{host_, "q_scale"};
  Operand k_scale_{host_, "k_scale"};
  Operand v_scale_{host_, "v_scale"};
  Operand o_scale_{host_, "o_scale"};
  Operand alibi_slopes_{host_, "alibi_slopes"};
  Operand sinks_{host_, "sinks"};
  Operand cu_seqlens_q_{host_, "cu_seqlens_q"};
  Operand cu_seqlens_kv_{host_, "cu_seqlens_kv"};
  Operand seqlens_q_{host_, "seqlens_q"};
  Operand seqlens_kv_{host_, "seqlens_kv"};
  Operand causal_offsets_{host_, "causal_offsets"};
  OracleResult result_;
};

}  // namespace

OracleResult oracle(const bench::HostProblem& host) { return Oracle(host).run(); }

}  // namespace flashcore
