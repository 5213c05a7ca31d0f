// The fp64 reference. One task is a batch entry and KV head; a row is done in three passes over
// its keys: scores and their largest, the denominator, the weighted sum.
#include "cpu/reference.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/parallel.hpp"
#include "problem/dtype.hpp"
#include "problem/philox.hpp"

namespace flashcore::cpu {
namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();

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

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

// The keys, values and scales of one batch entry and KV head.
struct KvHead {
  std::vector<double> k;        // [len_kv, head_dim_qk], as stored
  std::vector<double> v;        // [len_kv, head_dim_v], scaled
  std::vector<double> k_scale;  // [len_kv]
};

KvHead load_kv_head(const ForwardProblem& p, const Arguments& args, const Sequence& s, int64_t b,
                    int64_t kv_head) {
  KvHead kv;
  kv.k =
      load_rows(p.dtype, args.k, p.k.at(b, kv_head, s.kv_begin), s.len_kv, p.k.row, p.head_dim_qk);
  kv.v =
      load_rows(p.dtype, args.v, p.v.at(b, kv_head, s.kv_begin), s.len_kv, p.v.row, p.head_dim_v);
  kv.k_scale.assign(static_cast<size_t>(s.len_kv), 1.0);
  for (int64_t j = 0; j < s.len_kv; ++j) {
    const int64_t block = j / p.kv_scale_block;
    if (p.k_scale.present) {
      kv.k_scale[static_cast<size_t>(j)] = args.k_scale[p.k_scale.at(b, kv_head, block)];
    }
    if (!p.v_scale.present) continue;
    const double scale = args.v_scale[p.v_scale.at(b, kv_head, block)];
    for (int64_t d = 0; d < p.head_dim_v; ++d) {
      kv.v[static_cast<size_t>(j * p.head_dim_v + d)] *= scale;
    }
  }
  return kv;
}

// Steps 1 to 4 of the score: scale, softcap, bias, masks.
double score(const ForwardProblem& p, const Arguments& args, const Sequence& s, const KvHead& kv,
             const double* q_row, double q_scale, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (p.mask.present && static_cast<const uint8_t*>(args.mask)[p.mask.at(b, h, i, j)] == 0) {
    return kRemoved;
  }
  double value = dot(q_row, kv.k.data() + j * p.head_dim_qk, p.head_dim_qk) *
                 static_cast<double>(p.softmax_scale) * q_scale *
                 kv.k_scale[static_cast<size_t>(j)];
  if (p.softcap > 0) {
    const double cap = p.softcap;
    value = cap * std::tanh(value / cap);
  }
  if (p.bias.present) {
    const double bias = load_element(p.bias.dtype, args.bias, p.bias.at(b, h, i, j));
    if (bias == kRemoved) return kRemoved;  // whatever the score was, NaN included
    value += bias;
  }
  if (p.alibi_slopes.present) {
    const double slope = args.alibi_slopes[p.alibi_slopes.at(b, h)];
    value -= slope * static_cast<double>(std::abs(i + s.offset - j));
  }
  return value;
}

void attend_row(const ForwardProblem& p, const Arguments& args, const Sequence& s, const KvHead& kv,
                const PhiloxKey& key, int64_t b, int64_t h, int64_t i, DType intermediate,
                std::vector<double>& scores, std::vector<double>& out) {
  const KeyRange range = visible_keys(s, p.band, i);
  const std::vector<double> q_row =
      load_rows(p.dtype, args.q, p.q.at(b, h, s.q_begin + i), 1, 0, p.head_dim_qk);
  const double q_scale = p.q_scale.present ? args.q_scale[p.q_scale.at(b, h)] : 1.0;
  const double sink = p.sinks.present ? args.sinks[p.sinks.at(0, h)] : kRemoved;

  double largest = sink;
  bool any = false;
  for (int64_t j = range.begin; j < range.end; ++j) {
    const double value =
        round_to(intermediate, score(p, args, s, kv, q_row.data(), q_scale, b, h, i, j));
    scores[static_cast<size_t>(j)] = value;
    any = any || value != kRemoved;
    if (value > largest || std::isnan(value)) largest = value;  // NaN stays: no number is larger
  }

  out.assign(static_cast<size_t>(p.head_dim_v), 0.0);
  double sum = largest == kRemoved ? 0 : std::exp(sink - largest);
  for (int64_t j = range.begin; any && j < range.end; ++j) {
    sum += std::exp(scores[static_cast<size_t>(j)] - largest);
  }
  const uint64_t threshold = dropout_threshold(p.dropout_p);
  const double rescale = dropout_rescale(p.dropout_p);
  for (int64_t j = range.begin; any && j < range.end; ++j) {
    if (scores[static_cast<size_t>(j)] == kRemoved) continue;
    double weight =
        round_to(intermediate, std::exp(scores[static_cast<size_t>(j)] - largest) / sum);
    if (p.dropout_p > 0) {
      const PhiloxBlock words =
          dropout_words(key, static_cast<uint32_t>(b), static_cast<uint32_t>(h),
                        static_cast<uint32_t>(i), static_cast<uint32_t>(j / 4));
      weight *= words[static_cast<size_t>(j % 4)] >= threshold ? rescale : 0.0;
    }
    const double* v_row = kv.v.data() + j * p.head_dim_v;
    for (int64_t d = 0; d < p.head_dim_v; ++d) out[static_cast<size_t>(d)] += weight * v_row[d];
  }

  const int64_t row = s.q_begin + i;
  for (int64_t d = 0; d < p.head_dim_v; ++d) {
    store_element(p.o_dtype, args.o, p.o.at(b, h, row) + d, out[static_cast<size_t>(d)]);
  }
  if (p.has_lse) {
    const double lse = largest == kRemoved ? kRemoved : largest + std::log(sum);
    store_element(p.lse_dtype, args.lse, p.lse.at(b, h, row), lse);
  }
}

}  // namespace

void reference_forward(const ForwardProblem& p, const Arguments& args, int threads,
                       DType intermediate) {
  if (p.heads_q == 0 || p.seqlen_q == 0) return;  // no row, however large the batch
  const int64_t group = p.heads_q / p.heads_kv;
  const PhiloxKey key = dropout_key(args.dropout_seed, args.dropout_offset);
  parallel_for(p.batch * p.heads_kv, threads, [&](int64_t task) {
    const int64_t b = task / p.heads_kv;
    const int64_t kv_head = task % p.heads_kv;
    const Sequence s = sequence_of(p, args, b);
    const KvHead kv = load_kv_head(p, args, s, b, kv_head);
    std::vector<double> scores(static_cast<size_t>(s.len_kv));
    std::vector<double> out;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < s.rows_q; ++i) {
        attend_row(p, args, s, kv, key, b, h, i, intermediate, scores, out);
      }
    }
  });
}

}  // namespace flashcore::cpu
