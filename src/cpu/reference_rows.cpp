#include "cpu/reference_rows.hpp"

#include <cmath>

#include "problem/dropout.hpp"
#include "problem/dtype.hpp"
#include "problem/key_places.hpp"
#include "problem/philox.hpp"
#include "problem/tree_mask.hpp"

namespace flashcore::cpu {

std::vector<double> load_rows(DType dtype, const void* data, int64_t first, int64_t rows,
                              int64_t row_stride, int64_t width) {
  std::vector<double> out(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < width; ++d) {
      out[static_cast<size_t>(r * width + d)] =
          load_element(dtype, data, first + r * row_stride + d);
    }
  }
  return out;
}

double round_to(DType dtype, double value) {
  if (dtype == DType::f64) return value;
  double stored = 0;  // room for any type
  store_element(dtype, &stored, 0, value);
  return load_element(dtype, &stored, 0);
}

double in_fp32(DType intermediate, double value) {
  return intermediate == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value;
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

double unfused_dot(DType intermediate, const double* a, const double* b, int64_t n) {
  if (intermediate != DType::f32) return dot(a, b, n);
  float sum = 0;
  for (int64_t d = n; d-- > 0;) sum += static_cast<float>(a[d]) * static_cast<float>(b[d]);
  return sum;
}

double squares_of_dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < n; ++d) sum += a[d] * b[d] * a[d] * b[d];
  return sum;
}

KvHead load_kv_head(const ForwardProblem& p, const Arguments& args, const Sequence& s, int64_t b,
                    int64_t kv_head) {
  KvHead kv;
  kv.k.resize(static_cast<size_t>(s.len_kv * p.head_dim_qk));
  kv.v.resize(static_cast<size_t>(s.len_kv * p.head_dim_v));
  kv.k_scale.assign(static_cast<size_t>(s.len_kv), 1.0);
  const KeyRange seen = visible_keys(s, p.band, 0, s.len_q);
  const KeyPlaces places(p, args, s, b);
  for (int64_t j = seen.begin; j < seen.end; ++j) {
    const auto [lead, row, scale_row] = places.of(j);
    const int64_t block = scale_row / p.kv_scale_block;
    if (p.k_scale.present) {
      kv.k_scale[static_cast<size_t>(j)] = args.k_scale[p.k_scale.at(lead, kv_head, block)];
    }
    const double v_scale =
        p.v_scale.present ? args.v_scale[p.v_scale.at(lead, kv_head, block)] : 1.0;
    for (int64_t d = 0; d < p.head_dim_qk; ++d) {
      kv.k[static_cast<size_t>(j * p.head_dim_qk + d)] =
          load_element(p.k_dtype, args.k, p.k.at(lead, kv_head, row) + d);
    }
    for (int64_t d = 0; d < p.head_dim_v; ++d) {
      kv.v[static_cast<size_t>(j * p.head_dim_v + d)] =
          load_element(p.v_dtype, args.v, p.v_at(lead, kv_head, row, d)) * v_scale;
    }
  }
  return kv;
}

QueryRow load_query(const ForwardProblem& p, const Arguments& args, const Sequence& s, int64_t b,
                    int64_t h, int64_t i) {
  return {.batch = b,
          .head = h,
          .query = i,
          .q = load_rows(p.dtype, args.q, p.q.at(b, h, s.q_begin + i), 1, 0, p.head_dim_qk),
          .q_scale = p.q_scale.present ? args.q_scale[p.q_scale.at(b, h)] : 1.0};
}

double score(const ForwardProblem& p, const Arguments& args, const Sequence& s, const KvHead& kv,
             const QueryRow& row, int64_t j, double product, double* softcap_slope) {
  const auto& [b, h, i, q, q_scale] = row;
  if (p.mask.present && static_cast<const uint8_t*>(args.mask)[p.mask.at(b, h, i, j)] == 0) {
    return kRemovedPair;
  }
  if (p.tree_mask.present && !TreeRow(p, args.tree_mask, s, b, i).allows(j)) return kRemovedPair;
  double value =
      product * static_cast<double>(p.softmax_scale) * q_scale * kv.k_scale[static_cast<size_t>(j)];
  double slope = 1;
  if (p.softcap > 0) {
    const double cap = p.softcap;
    const double part = std::tanh(value / cap);
    value = cap * part;
    slope = (1 - part) * (1 + part);
  }
  if (softcap_slope != nullptr) *softcap_slope = slope;
  if (p.bias.present) {
    const double bias = load_element(p.bias.dtype, args.bias, p.bias.at(b, h, i, j));
    if (bias == kRemovedPair) return kRemovedPair;  // whatever the score was, NaN included
    value += bias;
  }
  if (p.alibi_slopes.present) {
    const double alibi = args.alibi_slopes[p.alibi_slopes.at(b, h)];
    value -= alibi * static_cast<double>(std::abs(i + s.offset - j));
  }
  return value;
}

DropoutWeights::DropoutWeights(const ForwardProblem& p, const Arguments& args)
    : dropout_p_(p.dropout_p),
      threshold_(dropout_threshold(p.dropout_p)),
      rescale_(dropout_rescale(p.dropout_p)) {
  const PhiloxKey key = dropout_key_of(p, args);
  key_[0] = key[0];
  key_[1] = key[1];
}

double DropoutWeights::of(const QueryRow& row, int64_t j) const {
  if (!(dropout_p_ > 0)) return 1;
  const PhiloxBlock words = dropout_words(
      {key_[0], key_[1]}, static_cast<uint32_t>(row.batch), static_cast<uint32_t>(row.head),
      static_cast<uint32_t>(row.query), static_cast<uint32_t>(j / 4));
  return words[static_cast<size_t>(j % 4)] >= threshold_ ? rescale_ : 0.0;
}

}  // namespace flashcore::cpu
