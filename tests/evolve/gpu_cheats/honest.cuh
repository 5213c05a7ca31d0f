// The plainest right kernel, which the cheats of this folder begin from: a thread computes one row.
// Without barriers, so that the stand-in of the driver runs it too.
#include <cuda_fp16.h>

#include <cmath>

//@ launch grid ceil_div(batch * heads_q * seqlen_q, 64)
//@ launch block 64

#define SIGNATURE                                                                            \
  const __half *q, const __half *k, const __half *v, __half *o, float *lse, void *workspace, \
      int batch, int heads_q, int heads_kv, int seqlen_q, int seqlen_kv, int head_dim, float scale
#define ARGUMENTS \
  q, k, v, o, lse, workspace, batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim, scale
#define KERNEL extern "C" __global__ void __launch_bounds__(64) attention

__device__ inline long row_of_thread() { return blockIdx.x * 64L + threadIdx.x; }
__device__ inline long rows_of(int batch, int heads_q, int seqlen_q) {
  return static_cast<long>(batch) * heads_q * seqlen_q;
}

// The first `keys` keys of one row.
__device__ inline void honest_row(SIGNATURE, long row, int keys) {
  const long head = row / seqlen_q;
  const long pair = head / heads_q * heads_kv + head % heads_q / (heads_q / heads_kv);
  const __half* const own_q = q + row * HEAD_DIM;
  const __half* const own_k = k + pair * seqlen_kv * HEAD_DIM;
  const __half* const own_v = v + pair * seqlen_kv * HEAD_DIM;
  float largest = -INFINITY, sum = 0, out[HEAD_DIM] = {};
  for (int j = 0; j < keys; ++j) {
    float score = 0;
    for (int d = 0; d < HEAD_DIM; ++d) {
      score += __half2float(own_q[d]) * __half2float(own_k[static_cast<long>(j) * HEAD_DIM + d]);
    }
    score *= scale;
    const float reference = fmaxf(largest, score);
    const float rescale = expf(largest - reference), weight = expf(score - reference);
    sum = sum * rescale + weight;
    for (int d = 0; d < HEAD_DIM; ++d) {
      out[d] = out[d] * rescale + weight * __half2float(own_v[static_cast<long>(j) * HEAD_DIM + d]);
    }
    largest = reference;
  }
  for (int d = 0; d < HEAD_DIM; ++d) o[row * HEAD_DIM + d] = __float2half(out[d] / sum);
  lse[row] = largest + logf(sum);
}

__device__ inline void honest(SIGNATURE) {
  const long row = row_of_thread();
  if (row < rows_of(batch, heads_q, seqlen_q)) honest_row(ARGUMENTS, row, seqlen_kv);
}

// Launches so far, this one included, on what every thread agrees: thread 0 of the launch counts. The
// other blocks may see one less.
__device__ int launches = 0;
__device__ inline int count_launch() {
  if (row_of_thread() == 0) atomicAdd(&launches, 1);
  return launches;
}
