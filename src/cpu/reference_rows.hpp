// Code that the reference's forward and backward pass share: rows as fp64, and the score of a pair.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "problem/problem.hpp"

namespace flashcore::cpu {

inline constexpr double kRemovedPair = -std::numeric_limits<double>::infinity();

std::vector<double> load_rows(DType dtype, const void* data, int64_t first, int64_t rows,
                              int64_t row_stride, int64_t width);

double round_to(DType dtype, double value);

// Rounds the result of an unfused operation if the computation is in fp32, and returns it unchanged otherwise.
double in_fp32(DType intermediate, double value);

double dot(const double* a, const double* b, int64_t n);
// dot(), or for fp32 an unfused one: a product, then a sum, from the last element to the first.
double unfused_dot(DType intermediate, const double* a, const double* b, int64_t n);
// The sum of the squares of the terms of dot().
double squares_of_dot(const double* a, const double* b, int64_t n);

// The keys, values and scales of one batch entry and KV head; zeros for keys outside of every query's band.
struct KvHead {
  std::vector<double> k;        // [len_kv, head_dim_qk], as stored
  std::vector<double> v;        // [len_kv, head_dim_v], scaled
  std::vector<double> k_scale;  // [len_kv]
};

KvHead load_kv_head(const ForwardProblem& p, const Arguments& args, const Sequence& s, int64_t b,
                    int64_t kv_head);

// A query of a head, and its location.
struct QueryRow {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t query = 0;
  std::vector<double> q;  // [head_dim_qk], as stored
  double q_scale = 1;
};

QueryRow load_query(const ForwardProblem& p, const Arguments& args, const Sequence& s, int64_t b,
                    int64_t h, int64_t i);

// Steps 1 to 4 of docs/semantics.md for a visible key j, given dot(q, k). Returns
// kRemovedPair if the pair does not attend. `softcap_slope`, if not null, gets
// the softcap's derivative.
double score(const ForwardProblem& p, const Arguments& args, const Sequence& s, const KvHead& kv,
             const QueryRow& row, int64_t j, double product, double* softcap_slope = nullptr);

// The factor that dropout applies to the weight of a pair; 1 without dropout.
class DropoutWeights {
 public:
  DropoutWeights(const ForwardProblem& p, const Arguments& args);
  double of(const QueryRow& row, int64_t j) const;

 private:
  float dropout_p_;
  uint64_t threshold_;
  double rescale_;
  uint32_t key_[2];
};

}  // namespace flashcore::cpu
