// What kernels are told of caches: attention/kv_cache.hpp.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_cache.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Everything but the pointers.
void set_cache_params(attention::KvCacheParams& cache, const ForwardProblem& p);

// The pointers of a run; those of absent inputs are null.
void bind_cache_params(attention::KvCacheParams& cache, const ForwardProblem& p,
                       const Arguments& args);

// A divisor of numbers below 2^31; at least 1.
attention::Divisor divisor_of(int64_t d);

}  // namespace flashcore::cuda::host
