// The peer of the CPU kernels: attention in three passes over a matrix of scores, with OpenBLAS for both
// products and a vectorised softmax between them. OpenBLAS is loaded at run time: nothing links it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class UnfusedBlas {
 public:
  // Finds libopenblas.so.0; the error says so if it is not there.
  static Result<UnfusedBlas> load(int threads);

  const std::string& version() const { return version_; }

  // Contiguous fp32: q and o [heads, seqlen_q, head_dim], k and v [heads / group, seqlen_kv,
  // head_dim]. Each thread takes whole heads: with as many heads as threads this is faster than
  // threads inside of the products.
  struct Inputs {
    const float *q, *k, *v;
    float* o;
    int64_t heads, seqlen_q, seqlen_kv, head_dim;
    float scale;
    int64_t group = 1;    // query heads that share a head of k and v
    bool causal = false;  // the last query sees the last key
  };

  // Operator by operator: a product over all heads, the softmax of all scores, a product. Scores
  // are [heads, seqlen_q, seqlen_kv], as in a framework without fusion.
  void run_by_operator(const Inputs& in);
  // All three for one head, then the next: scores of [seqlen_q, seqlen_kv] per thread.
  void run_by_head(const Inputs& in);

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);

  void multiply_qk(const Inputs& in, int64_t head, float* scores) const;
  void softmax(const Inputs& in, float* scores) const;  // one head's scores
  void multiply_pv(const Inputs& in, int64_t head, const float* scores) const;

  Sgemm sgemm_ = nullptr;
  void (*softmax_rows_)(float* scores, int64_t rows, int64_t columns, float scale) = nullptr;
  int threads_ = 1;
  std::string version_;
  std::vector<float> scores_;
};

}  // namespace flashcore::bench
