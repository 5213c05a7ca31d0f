// A seed for flashcore evolve (docs/evolve.md): softmax(Q K^T) V in one pass over the keys.
//
// With the first value of each parameter it takes one query, and one key after the other. Other
// values give a tile of ROWS queries and KEYS keys, whose keys are copied with the keys of one
// element side by side, and sums STRIP elements of O over these keys before it writes them: then the
// compiler has vectors to make.
//@ param ROWS {1, 4, 8, 32}
//@ param KEYS {1, 4, 8, 32}
//@ param STRIP {1, 16, 32}
//@ param FAST_EXP {0, 1}
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { kMostDim = 1024 };
static float keys[kMostDim][KEYS];  // keys[d][j]: element d of key j of the tile

// e^x for x <= 0: 2^n e^f, with x - n ln 2 in two parts and a polynomial.
static inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const float f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.98412698e-4f;
  p = p * f + 1.38888889e-3f;
  p = p * f + 8.33333333e-3f;
  p = p * f + 4.16666667e-2f;
  p = p * f + 1.66666667e-1f;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  const int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return p * power;
}

// `width` elements of O, of the keys of a tile.
static inline void add_values(const float* restrict p, const float* restrict v, float* restrict o,
                              int64_t count, int64_t width, int64_t dim) {
  float strip[STRIP] = {0};
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t e = 0; e < width; ++e) strip[e] += p[j] * v[j * dim + e];
  }
  for (int64_t e = 0; e < width; ++e) o[e] += strip[e];
}

// O of `rows` queries of one head.
static void attend(const float* restrict q, const float* restrict k, const float* restrict v,
                   float* restrict o, float* restrict lse, int64_t rows, int64_t seqlen_kv,
                   int64_t dim, float scale) {
  float largest[ROWS], sum[ROWS];
  for (int64_t r = 0; r < rows; ++r) {
    largest[r] = -INFINITY;
    sum[r] = 0;
    for (int64_t d = 0; d < dim; ++d) o[r * dim + d] = 0;
  }
  for (int64_t first = 0; first < seqlen_kv; first += KEYS) {
    const int64_t count = seqlen_kv - first < KEYS ? seqlen_kv - first : KEYS;
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t j = 0; j < KEYS; ++j) keys[d][j] = j < count ? k[(first + j) * dim + d] : 0;
    }
    float s[ROWS][KEYS] = {{0}};
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t r = 0; r < ROWS; ++r) {
        // The last tile may have fewer rows; its others repeat the last.
        const float one = q[(r < rows ? r : rows - 1) * dim + d];
        for (int64_t j = 0; j < KEYS; ++j) s[r][j] += one * keys[d][j];
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      float highest = largest[r];
      for (int64_t j = 0; j < KEYS; ++j) s[r][j] *= scale;
      for (int64_t j = 0; j < count; ++j) highest = s[r][j] > highest ? s[r][j] : highest;
      float p[KEYS];
      for (int64_t j = 0; j < KEYS; ++j) {
        p[j] = FAST_EXP ? fast_exp(s[r][j] - highest) : expf(s[r][j] - highest);
      }
      const float keep = expf(largest[r] - highest);
      largest[r] = highest;
      sum[r] *= keep;
      if (keep != 1) {
        for (int64_t d = 0; d < dim; ++d) o[r * dim + d] *= keep;
      }
      for (int64_t j = 0; j < count; ++j) sum[r] += p[j];
      int64_t d = 0;
      for (; d + STRIP <= dim; d += STRIP) {
        add_values(p, v + first * dim + d, o + r * dim + d, count, STRIP, dim);
      }
      if (d < dim) add_values(p, v + first * dim + d, o + r * dim + d, count, dim - d, dim);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < dim; ++d) o[r * dim + d] /= sum[r];
    lse[r] = largest[r] + logf(sum[r]);
  }
}

void attention(const float* q, const float* k, const float* v, float* o, float* lse, int64_t batch,
               int64_t heads_q, int64_t heads_kv, int64_t seqlen_q, int64_t seqlen_kv,
               int64_t head_dim, float scale) {
  for (int64_t head = 0; head < batch * heads_q; ++head) {
    const int64_t head_kv = head / heads_q * heads_kv + head % heads_q / (heads_q / heads_kv);
    const float* const keys_of = k + head_kv * seqlen_kv * head_dim;
    const float* const values_of = v + head_kv * seqlen_kv * head_dim;
    for (int64_t first = 0; first < seqlen_q; first += ROWS) {
      const int64_t rows = seqlen_q - first < ROWS ? seqlen_q - first : ROWS;
      const int64_t row = head * seqlen_q + first;
      attend(q + row * head_dim, keys_of, values_of, o + row * head_dim, lse + row, rows, seqlen_kv,
             head_dim, scale);
    }
  }
}
