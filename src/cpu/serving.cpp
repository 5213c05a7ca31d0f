// Merge: rows in blocks, each read once and written once. Append: one task per batch entry, since
// it copies little compared with the attention that follows.
#include "cpu/serving.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/parallel.hpp"
#include "problem/dtype.hpp"
#include "problem/key_places.hpp"

namespace flashcore::cpu {
namespace {

// ---------------------------------------------------------------------------------------------
// Merge

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

float widened(float value) { return value; }
float widened(BF16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
// Branch-free, so that loops over rows become vector instructions. The f16 exponent read as an fp32
// exponent is too small by 112; infinities and NaN have the largest exponent in both formats.
float widened(F16 value) {
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7FFFu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t special = magnitude >= 0x0F800000u ? 0x7F800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

void narrow(float value, float& out) { out = value; }
void narrow(float value, BF16& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  out.bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
}
void narrow(float value, F16& out) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Normal numbers: subtracts 112 from the exponent, and rounds to nearest even.
  const uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 the last bit is worth 2^-24, like the last bit of 1/2 in fp32: adding 1/2 rounds.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const uint32_t large = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;  // 2^16 and above
  const uint32_t rounded = magnitude < 0x38800000u    ? small
                           : magnitude >= 0x47800000u ? large
                                                      : normal;
  out.bits = static_cast<uint16_t>(rounded | ((bits >> 16) & 0x8000u));
}

struct Weights {
  float a = 0;
  float b = 0;
  float lse = 0;
};

Weights weights_of(float lse_a, float lse_b) {
  const double a = lse_a, b = lse_b;
  // a + b is +inf if one of them is and the other is not -inf.
  if (std::isnan(a) || std::isnan(b) || a + b == std::numeric_limits<double>::infinity()) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return {nan, nan, nan};
  }
  const double largest = std::max(a, b);
  if (largest == -std::numeric_limits<double>::infinity()) return {0, 0, lse_a};
  const double part_a = a == largest ? 1 : std::exp(a - largest);
  const double part_b = b == largest ? 1 : std::exp(b - largest);
  const double sum = part_a + part_b;
  return {static_cast<float>(part_a / sum), static_cast<float>(part_b / sum),
          static_cast<float>(largest + std::log(sum))};
}

// A part of weight 0 is skipped, not multiplied by 0: it may hold NaN.
template <class In, class Out>
void merge_row(const Weights& weights, const In* a, const In* b, Out* o, int64_t width) {
  if (weights.a == 0 || weights.b == 0) {
    const In* const only = weights.a == 0 ? b : a;
    const float weight = weights.a == 0 ? weights.b : weights.a;
    for (int64_t d = 0; d < width; ++d) {
      narrow(weight == 0 ? 0.0f : weight * widened(only[d]), o[d]);
    }
    return;
  }
  for (int64_t d = 0; d < width; ++d) {
    narrow(weights.a * widened(a[d]) + weights.b * widened(b[d]), o[d]);
  }
}

template <class In, class Out>
void merge_as(const MergeProblem& p, const MergeArguments& args, int threads) {
  constexpr int64_t kRows = 64;
  const int64_t blocks = (p.rows + kRows - 1) / kRows;
  parallel_for(p.batch * p.heads * blocks, threads, [&](int64_t task) {
    // Heads are innermost, because they are adjacent in memory if rows are [.., rows, heads, width].
    const int64_t h = task % p.heads;
    const int64_t block = task / p.heads % blocks;
    const int64_t n = task / p.heads / blocks;
    for (int64_t r = block * kRows; r < std::min(p.rows, (block + 1) * kRows); ++r) {
      const Weights weights =
          weights_of(args.lse_a[p.lse_a.at(n, h, r)], args.lse_b[p.lse_b.at(n, h, r)]);
      merge_row(weights, static_cast<const In*>(args.o_a) + p.o_a.at(n, h, r),
                static_cast<const In*>(args.o_b) + p.o_b.at(n, h, r),
                static_cast<Out*>(args.o) + p.o.at(n, h, r), p.head_dim);
      if (p.has_lse) args.lse[p.lse.at(n, h, r)] = weights.lse;
    }
  });
}

template <class In>
void merge_from(const MergeProblem& p, const MergeArguments& args, int threads) {
  return p.o_dtype == p.dtype ? merge_as<In, In>(p, args, threads)
                              : merge_as<In, float>(p, args, threads);
}

// ---------------------------------------------------------------------------------------------
// Append

struct Angle {
  float cos = 1;
  float sin = 0;
};

class Rotation {
 public:
  Rotation(const AppendProblem& p, const AppendArguments& args) : p_(p), args_(args) {}

  // Computes the angles of a position, one per pair.
  void angles(int64_t position, std::vector<Angle>& out) const {
    out.resize(static_cast<size_t>(p_.rotary_dim / 2));
    for (size_t n = 0; n < out.size(); ++n) {
      const auto pair = static_cast<int64_t>(n);
      if (p_.from_tables) {
        out[n] = {args_.rope_cos[p_.rope_cos.at(0, pair, position)],
                  args_.rope_sin[p_.rope_sin.at(0, pair, position)]};
        continue;
      }
      const double power = -2.0 * static_cast<double>(n) / static_cast<double>(p_.rotary_dim);
      const double angle = static_cast<double>(position) * static_cast<double>(p_.rope_scale) *
                           std::pow(static_cast<double>(p_.rope_base), power);
      out[n] = {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
    }
  }

  void rotate(const std::vector<Angle>& angles, std::vector<float>& row) const {
    const size_t pairs = angles.size();
    for (size_t n = 0; n < pairs; ++n) {
      float& x = row[p_.interleaved ? 2 * n : n];
      float& y = row[p_.interleaved ? 2 * n + 1 : n + pairs];
      const float old = x;
      x = old * angles[n].cos - y * angles[n].sin;
      y = old * angles[n].sin + y * angles[n].cos;
    }
  }

 private:
  const AppendProblem& p_;
  const AppendArguments& args_;
};

void load(DType dtype, const void* data, int64_t first, int64_t width, std::vector<float>& row) {
  row.resize(static_cast<size_t>(width));
  for (int64_t d = 0; d < width; ++d) {
    row[static_cast<size_t>(d)] = static_cast<float>(load_element(dtype, data, first + d));
  }
}

void copy_row(DType dtype, const void* from, int64_t first, void* to, int64_t at, int64_t width) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  std::memcpy(static_cast<std::byte*>(to) + at * size,
              static_cast<const std::byte*>(from) + first * size,
              static_cast<size_t>(width * size));
}

class AppendRun {
 public:
  AppendRun(const AppendProblem& problem, const AppendArguments& args)
      : problem_(problem),
        p_(problem.cache),
        args_(args),
        cache_(cache_arguments(args)),
        rotation_(problem, args) {}

  void entry(int64_t b) const {
    const NewRows rows = new_rows(problem_, args_, b);
    const KeyPlaces places(p_, cache_, Sequence{}, b);
    std::vector<Angle> angles;
    std::vector<float> row;
    for (int64_t i = 0; i < rows.in_use; ++i) {
      const int64_t in_cache = rows.first_row + i;
      if (problem_.rotary_dim > 0) rotation_.angles(rows.position + i, angles);
      if (has_place(places, in_cache)) {
        const KeyPlace place = places.of(in_cache);
        for (int64_t h = 0; h < p_.heads_kv; ++h) {
          store_key(b, h, rows.begin + i, place, angles, row);
          store_value(b, h, rows.begin + i, place, row);
        }
      }
      for (int64_t h = 0; problem_.has_q && h < problem_.heads_q; ++h) {
        load(p_.dtype, args_.q, problem_.q.at(b, h, rows.begin + i), p_.head_dim_qk, row);
        rotation_.rotate(angles, row);
        store(p_.dtype, row, args_.q_out, problem_.q_out.at(b, h, rows.begin + i));
      }
    }
    row.assign(static_cast<size_t>(p_.head_dim_qk), 0.0f);
    for (int64_t i = rows.in_use; problem_.has_q && i < rows.all; ++i) {
      for (int64_t h = 0; h < problem_.heads_q; ++h) {
        store(p_.dtype, row, args_.q_out, problem_.q_out.at(b, h, rows.begin + i));
      }
    }
  }

 private:
  // Returns whether a cache row has a page. An index out of range is not clamped: another page would be overwritten.
  bool has_place(const KeyPlaces& places, int64_t row) const {
    if (!p_.paging.present) return true;
    const int64_t page = places.stored_page(row / p_.paging.page_size);
    return page >= 0 && page < p_.paging.num_pages;
  }

  float scale_of(const ScaleInput& scale, const float* data, const KeyPlace& place,
                 int64_t h) const {
    return scale.present ? data[scale.at(place.lead, h, place.scale_row / p_.kv_scale_block)] : 1;
  }

  static void store(DType dtype, const std::vector<float>& row, void* to, int64_t at) {
    for (size_t d = 0; d < row.size(); ++d) {
      store_element(dtype, to, at + static_cast<int64_t>(d), row[d]);
    }
  }

  static void store_scaled(DType dtype, std::vector<float>& row, float scale, void* to,
                           int64_t at) {
    for (float& value : row) value /= scale;
    store(dtype, row, to, at);
  }

  void store_key(int64_t b, int64_t h, int64_t i, const KeyPlace& place,
                 const std::vector<Angle>& angles, std::vector<float>& row) const {
    const int64_t from = problem_.k_new.at(b, h, i), to = p_.k.at(place.lead, h, place.row);
    if (problem_.rotary_dim == 0 && p_.k_dtype == p_.dtype) {
      copy_row(p_.dtype, args_.k_new, from, args_.k, to, p_.head_dim_qk);
      return;
    }
    load(p_.dtype, args_.k_new, from, p_.head_dim_qk, row);
    if (problem_.rotary_dim > 0) rotation_.rotate(angles, row);
    const float scale = p_.k_dtype == p_.dtype ? 1 : scale_of(p_.k_scale, args_.k_scale, place, h);
    store_scaled(p_.k_dtype, row, scale, args_.k, to);
  }

  void store_value(int64_t b, int64_t h, int64_t i, const KeyPlace& place,
                   std::vector<float>& row) const {
    const int64_t from = problem_.v_new.at(b, h, i), to = p_.v_at(place.lead, h, place.row, 0);
    if (p_.v_transposed) {
      store_column(from, to, scale_of(p_.v_scale, args_.v_scale, place, h), row);
      return;
    }
    if (p_.v_dtype == p_.dtype) {
      copy_row(p_.dtype, args_.v_new, from, args_.v, to, p_.head_dim_v);
      return;
    }
    load(p_.dtype, args_.v_new, from, p_.head_dim_v, row);
    store_scaled(p_.v_dtype, row, scale_of(p_.v_scale, args_.v_scale, place, h), args_.v, to);
  }

  // Stores a row as a column of a V that is stored transposed, whose elements are bytes.
  void store_column(int64_t from, int64_t to, float scale, std::vector<float>& row) const {
    if (p_.v_dtype == p_.dtype) {
      for (int64_t d = 0; d < p_.head_dim_v; ++d) {
        copy_row(p_.dtype, args_.v_new, from + d, args_.v, to + d * p_.v.row, 1);
      }
      return;
    }
    load(p_.dtype, args_.v_new, from, p_.head_dim_v, row);
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      store_element(p_.v_dtype, args_.v, to + d * p_.v.row, row[static_cast<size_t>(d)] / scale);
    }
  }

  const AppendProblem& problem_;
  const ForwardProblem& p_;
  const AppendArguments& args_;
  const Arguments cache_;
  const Rotation rotation_;
};

}  // namespace

void merge(const MergeProblem& problem, const MergeArguments& args, int threads) {
  if (problem.batch == 0 || problem.heads == 0 || problem.rows == 0) return;
  switch (problem.dtype) {
    case DType::bf16:
      return merge_from<BF16>(problem, args, threads);
    case DType::f16:
      return merge_from<F16>(problem, args, threads);
    default:
      return merge_as<float, float>(problem, args, threads);
  }
}

void append(const AppendProblem& problem, const AppendArguments& args, int threads) {
  const AppendRun run(problem, args);
  parallel_for(problem.cache.batch, threads, [&](int64_t b) { run.entry(b); });
}

}  // namespace flashcore::cpu
