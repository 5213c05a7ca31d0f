// Sets the cache parameters of kernels: attention/kv_cache.hpp.
#pragma once

#include <cstdint>

#include "cuda/attention/kv_cache.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

// Sets everything except the pointers.
void set_cache_params(attention::KvCacheParams& cache, const ForwardProblem& p);

// Sets the pointers of a run; pointers of absent inputs are null.
void bind_cache_params(attention::KvCacheParams& cache, const ForwardProblem& p,
                       const Arguments& args);

// Returns a divisor for numbers below 2^31; at least 1.
attention::Divisor divisor_of(int64_t d);

}  // namespace flashcore::cuda::host
