// What forward_sm80_throughput does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// The rows of the family: 16-bit inputs, fp32 inputs, any of them with dropout's seed in memory, and
// with the keys in splits; inputs stored in fp8; and 16-bit inputs with keys and values in a cache.
enum class Variant { half, f32, dropout_state, split_kv, fp8, paged };

// The row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets, Variant kernel = Variant::half);

// Whether a problem's keys are shared out to several blocks without being asked to: few queries
// against long keys that leave most of the GPU idle. Never with PlanContext::batch_invariant, as
// the choice cannot know how few there are.
bool splits_keys(const ForwardProblem& problem, const PlanContext& context);

// Of K and V: what their batch strides lead to, entries or pages, and how many rows that has.
int64_t lead_of_keys(const ForwardProblem& problem);
int64_t rows_of_keys(const ForwardProblem& problem);

// What the kernel of a problem looks for in every tile, given pointers at multiples of 16 bytes.
Features features_of(const ForwardProblem& problem, bool batch_invariant);

}  // namespace flashcore::cuda::forward_sm80::throughput
