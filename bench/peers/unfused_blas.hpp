// The peer of the CPU kernels: attention in three passes over a matrix of scores, OpenBLAS for both
// products and a vectorised softmax between them. OpenBLAS is loaded at run time: nothing links it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class UnfusedBlas {
 public:
  // Finds libopenblas.so.0; the sentence says so when it is not there.
  static Result<UnfusedBlas> load(int threads);

  const std::string& version() const { return version_; }

  // [heads, seqlen, head_dim] contiguous fp32, not causal. Whole heads side by side, one thread a
  // head: for 2 heads a thread and more that is faster than threads inside of the products.
  void run(const float* q, const float* k, const float* v, float* o, int64_t heads, int64_t seqlen,
           int64_t head_dim, float scale);

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);

  void head(const float* q, const float* k, const float* v, float* o, int64_t seqlen,
            int64_t head_dim, float scale, std::vector<float>& scores) const;

  Sgemm sgemm_ = nullptr;
  void (*softmax_rows_)(float* scores, int64_t rows, int64_t columns, float scale) = nullptr;
  int threads_ = 1;
  std::string version_;
  std::vector<std::vector<float>> scores_;  // [seqlen, seqlen] of each thread
};

}  // namespace flashcore::bench
