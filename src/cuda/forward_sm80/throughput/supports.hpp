// What forward_sm80_throughput computes. Needs no CUDA header.
#pragma once

#include "cuda/forward_sm80/throughput/config.hpp"
#include "kernel/kernel.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// The rows of the family: 16-bit inputs, fp32 inputs, any of them with dropout's seed in memory, and
// with the keys in splits; inputs stored in fp8; and 16-bit inputs with keys and values in a cache.
enum class Kind { half, f32, split_kv, fp8, paged };

// The row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

Supports supports(Kind kind = Kind::half);

// Returns whether a problem's keys are split among several blocks without a request: few queries
// against long keys that leave most of the GPU idle. Never with PlanContext::batch_invariant, as
// the choice cannot know how few there are.
bool splits_keys(const ForwardProblem& problem, const PlanContext& context);

// What the kernel of a problem looks for in every tile, given pointers at multiples of 16 bytes.
Features features_of(const ForwardProblem& problem, bool batch_invariant);

}  // namespace flashcore::cuda::forward_sm80::throughput
