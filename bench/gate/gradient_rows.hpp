// Some rows of the gradients of one KV head and its query heads, in fp64, and by the naive
// computation of docs/semantics.md: the reference of a sampled gate for gradients.
//
// 16 rows are computed at once. A lane is a query for dQ, and a key for dK and dV; the other side
// is read row by row. The rows of dK and dV need LSE and delta of all queries.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bench/gate/gradient_gates.hpp"
#include "bench/gate/lanes.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "cpu/reference_rows.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::bench {

class GradientRows {
 public:
  static constexpr int64_t kLanes = bench::kLanes;

  // How LSE and O of all queries are computed: in fp64, or, for 16-bit inputs, by the CPU's kernel
  // in fp32, whose errors are far below the limits. The rows of dQ compute their own in fp64.
  enum class Statistics { fp64, fp32 };

  GradientRows(GradientRows&&) = default;
  GradientRows(const GradientRows&) = delete;

  // `forward`: one batch entry with one KV head, not packed; its O and LSE are not read. `d_o` and
  // `d_lse` (null: none) are contiguous, with the shapes of O and LSE.
  static Result<GradientRows> make(HostProblem forward, const HostTensor& d_o,
                                   const HostTensor* d_lse, Statistics statistics, int threads);

  // The right O and LSE, rounded to their types, as a forward pass should write them.
  const HostTensor& o() const { return o_; }
  const HostTensor& lse() const { return lse_; }

  // dQ of queries [first, first + count) of a query head, at most kLanes. An error if fp64 finds
  // other statistics than those found for all queries.
  Result<GradientReference> dq(int64_t head, int64_t first, int64_t count) const;

  // dK and dV of keys [first, first + count), at most kLanes.
  std::pair<GradientReference, GradientReference> dk_dv(int64_t first, int64_t count) const;

 private:
  struct Softmax {  // of one row: LSE is largest + log(sum)
    double largest, sum;
  };
  template <class Naive>
  class Queries;
  template <class Naive>
  class Keys;

  GradientRows(HostProblem forward, const ForwardProblem& resolved, const HostTensor& d_o,
               const HostTensor* d_lse);
  template <class Naive>
  void find_in_fp64(int threads);
  Status find_in_fp32(int threads);
  void set_statistics(int64_t row, double lse, const double* o, const Softmax& naive);
  template <class Naive>
  Result<GradientReference> dq_of(int64_t head, int64_t first, int64_t count) const;

  int64_t row_number(int64_t head, int64_t query) const { return head * p_.seqlen_q + query; }
  const double* q_row(int64_t row) const { return q_.data() + row * p_.head_dim_qk; }
  const double* d_o_row(int64_t row) const { return d_o_.data() + row * p_.head_dim_v; }
  const double* k_row(int64_t key) const { return kv_.k.data() + key * p_.head_dim_qk; }
  const double* v_row(int64_t key) const { return kv_.v.data() + key * p_.head_dim_v; }

  HostProblem host_;
  ForwardProblem p_;
  Arguments args_;
  Sequence s_;
  cpu::KvHead kv_;
  cpu::DropoutWeights dropout_;
  DType intermediate_;                   // the naive computation's type
  std::vector<double> q_, d_o_, d_lse_;  // [query heads, queries, width]; d_lse_: zeros if none
  HostTensor o_, lse_;
  // Indexed by query head and query. `naive_delta_` uses the rounded O.
  std::vector<double> row_lse_, delta_, naive_delta_;
  // The naive computation's largest score and sum of weights; LSE and 1 if they were not found.
  std::vector<double> naive_largest_, naive_sum_;
};

}  // namespace flashcore::bench
