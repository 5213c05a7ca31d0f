/* The basis of the cheats: the right result, computed plainly, and system calls without a library. The
   test puts this text before a cheat's. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIGNATURE                                                                               \
  const float *q, const float *k, const float *v, float *o, float *lse, int64_t batch,          \
      int64_t heads_q, int64_t heads_kv, int64_t seqlen_q, int64_t seqlen_kv, int64_t head_dim, \
      float scale
#define ARGUMENTS q, k, v, o, lse, batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim, scale

/* One row, number `row` of batch * heads_q * seqlen_q. */
static inline void honest_row(SIGNATURE, int64_t row) {
  (void)batch;
  const int64_t head = row / seqlen_q;
  const int64_t head_kv = head / heads_q * heads_kv + head % heads_q / (heads_q / heads_kv);
  const float *keys = k + head_kv * seqlen_kv * head_dim,
              *values = v + head_kv * seqlen_kv * head_dim;
  const float* query = q + row * head_dim;
  float* out = o + row * head_dim;
  float largest = -INFINITY, sum = 0;
  for (int64_t d = 0; d < head_dim; ++d) out[d] = 0;
  for (int64_t j = 0; j < seqlen_kv; ++j) {
    float s = 0;
    for (int64_t d = 0; d < head_dim; ++d) s += query[d] * keys[j * head_dim + d];
    s *= scale;
    const float highest = s > largest ? s : largest;
    const float keep = expf(largest - highest), p = expf(s - highest);
    largest = highest;
    sum = sum * keep + p;
    for (int64_t d = 0; d < head_dim; ++d) out[d] = out[d] * keep + p * values[j * head_dim + d];
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] /= sum;
  lse[row] = largest + logf(sum);
}

static inline void honest(SIGNATURE) {
  for (int64_t row = 0; row < batch * heads_q * seqlen_q; ++row) honest_row(ARGUMENTS, row);
}

static inline long system_call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result;
  register long fourth __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                   : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#endif
}
