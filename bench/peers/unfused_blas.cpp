#include "bench/peers/unfused_blas.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <limits>
#include <thread>

namespace flashcore::bench {
namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;  // CBLAS

// e^x for x <= 0, in a form that compilers can vectorise.
[[gnu::always_inline]] inline float exp_of(float x) {
  const float t = std::max(x * 1.44269504f, -126.0f);
  const float shifted = t + 12583039.0f;
  const float r = t - (shifted - 12583039.0f);
  float p = 0.00111255093f;
  p = p * r + 0.00966628255f;
  p = p * r + 0.0555740047f;
  p = p * r + 0.240223507f;
  p = p * r + 0.693142831f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
}

[[gnu::always_inline]] inline void softmax_rows(float* scores, int64_t rows, int64_t columns,
                                                float scale) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const s = scores + i * columns;
    float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
    for (int64_t j = 0; j < columns; ++j) largest = std::max(largest, s[j]);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < columns; ++j) {
      s[j] = exp_of((s[j] - largest) * scale);
      sum += s[j];
    }
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) s[j] *= inverse;
  }
}

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,fma,prefer-vector-width=512")]] void softmax_512(
    float* s, int64_t rows, int64_t columns, float scale) {
  softmax_rows(s, rows, columns, scale);
}
[[gnu::target("avx2,fma")]] void softmax_256(float* s, int64_t rows, int64_t columns, float scale) {
  softmax_rows(s, rows, columns, scale);
}
#endif
void softmax_128(float* s, int64_t rows, int64_t columns, float scale) {
  softmax_rows(s, rows, columns, scale);
}

using Softmax = void (*)(float*, int64_t, int64_t, float);
Softmax choose_softmax() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return softmax_512;
  if (__builtin_cpu_supports("avx2")) return softmax_256;
#endif
  return softmax_128;
}

// OpenBLAS chooses its kernels from a list of processors: a processor newer than the list gets
// kernels from 2004. This names the right ones, unless the caller did.
void choose_blas_kernels() {
#if defined(__x86_64__)
  const char* core = nullptr;
  if (__builtin_cpu_supports("avx2")) core = "Haswell";
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) core = "SkylakeX";
  if (__builtin_cpu_supports("avx512bf16")) core = "Cooperlake";
  if (core != nullptr) setenv("OPENBLAS_CORETYPE", core, 0);
#endif
}

// Calls task(head, thread) for every head.
template <class Task>
void over_heads(int64_t threads, int64_t heads, const Task& task) {
  std::atomic<int64_t> next{0};
  const auto work = [&](int64_t thread) {
    for (int64_t h = next++; h < heads; h = next++) task(h, thread);
  };
  std::vector<std::jthread> others;
  for (int64_t t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
}

}  // namespace

Result<UnfusedBlas> UnfusedBlas::load(int threads) {
  choose_blas_kernels();
  void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(StatusCode::unsupported,
                  "OpenBLAS: libopenblas.so.0 was not found, wanted the package libopenblas0");
  }
  UnfusedBlas peer;
  peer.sgemm_ = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  const auto set_threads =
      reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  const auto config = reinterpret_cast<char* (*)()>(dlsym(library, "openblas_get_config"));
  if (peer.sgemm_ == nullptr || set_threads == nullptr || config == nullptr) {
    return Status(StatusCode::unsupported,
                  "OpenBLAS: libopenblas.so.0 lacks cblas_sgemm or openblas_set_num_threads");
  }
  set_threads(1);
  peer.softmax_rows_ = choose_softmax();
  peer.threads_ = threads;
  peer.version_ = config();
  return peer;
}

void UnfusedBlas::multiply_qk(const Inputs& in, int64_t head, float* scores) const {
  const int queries = static_cast<int>(in.seqlen_q), keys = static_cast<int>(in.seqlen_kv);
  const int d = static_cast<int>(in.head_dim);
  const float* const q = in.q + head * in.seqlen_q * in.head_dim;
  const float* const k = in.k + head / in.group * in.seqlen_kv * in.head_dim;
  sgemm_(kRowMajor, kNoTrans, kTrans, queries, keys, d, 1.0f, q, d, k, d, 0.0f, scores, keys);
}

void UnfusedBlas::softmax(const Inputs& in, float* scores) const {
  if (!in.causal) {
    softmax_rows_(scores, in.seqlen_q, in.seqlen_kv, in.scale);
    return;
  }
  for (int64_t i = 0; i < in.seqlen_q; ++i) {
    const int64_t seen = std::clamp(in.seqlen_kv - in.seqlen_q + i + 1, int64_t{0}, in.seqlen_kv);
    float* const row = scores + i * in.seqlen_kv;
    if (seen > 0) softmax_rows_(row, 1, seen, in.scale);
    std::fill(row + seen, row + in.seqlen_kv, 0.0f);
  }
}

void UnfusedBlas::multiply_pv(const Inputs& in, int64_t head, const float* scores) const {
  const int queries = static_cast<int>(in.seqlen_q), keys = static_cast<int>(in.seqlen_kv);
  const int d = static_cast<int>(in.head_dim);
  const float* const v = in.v + head / in.group * in.seqlen_kv * in.head_dim;
  float* const o = in.o + head * in.seqlen_q * in.head_dim;
  sgemm_(kRowMajor, kNoTrans, kNoTrans, queries, d, keys, 1.0f, scores, keys, v, d, 0.0f, o, d);
}

void UnfusedBlas::run_by_operator(const Inputs& in) {
  const int64_t size = in.seqlen_q * in.seqlen_kv;
  scores_.resize(static_cast<size_t>(in.heads * size));
  float* const scores = scores_.data();
  over_heads(threads_, in.heads,
             [&](int64_t h, int64_t) { multiply_qk(in, h, scores + h * size); });
  over_heads(threads_, in.heads, [&](int64_t h, int64_t) { softmax(in, scores + h * size); });
  over_heads(threads_, in.heads,
             [&](int64_t h, int64_t) { multiply_pv(in, h, scores + h * size); });
}

void UnfusedBlas::run_by_head(const Inputs& in) {
  const int64_t size = in.seqlen_q * in.seqlen_kv;
  scores_.resize(static_cast<size_t>(threads_ * size));
  over_heads(threads_, in.heads, [&](int64_t h, int64_t thread) {
    float* const scores = scores_.data() + thread * size;
    multiply_qk(in, h, scores);
    softmax(in, scores);
    multiply_pv(in, h, scores);
  });
}

}  // namespace flashcore::bench
