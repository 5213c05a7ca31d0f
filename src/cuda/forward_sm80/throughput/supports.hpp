// Problems that forward_sm80_throughput does not support. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

// The rows of the family: 16-bit inputs; fp32 inputs; either of them with dropout's seed in memory,
// or with splits of the keys; inputs stored in fp8; 16-bit inputs with keys and values in a cache.
enum class Variant { half, f32, dropout_state, split_kv, fp8, paged };

// Returns the row of kConfigs that computes a problem, or -1.
int config_index(const ForwardProblem& problem);

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const ForwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets, Variant kernel = Variant::half);

// Returns whether a problem's keys are split between blocks by default: few queries
// against long keys leave most of the GPU idle. Never with PlanContext::batch_invariant,
// since the choice may not depend on the number of queries.
bool splits_keys(const ForwardProblem& problem, const PlanContext& context);

// The extent of K's and V's batch stride (sequences or pages), and the number of rows in each.
int64_t lead_of_keys(const ForwardProblem& problem);
int64_t rows_of_keys(const ForwardProblem& problem);

// Returns the options that a problem's kernel checks in every tile, for 16-byte aligned pointers.
Features features_of(const ForwardProblem& problem, bool batch_invariant);

}  // namespace flashcore::cuda::forward_sm80::throughput
