// What forward_sm80_throughput does not compute. Needs no CUDA header.
#pragma once

#include <string>
#include <string_view>

#include "cuda/forward_sm80/throughput/config.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {

// The rows of the family: 16-bit inputs, fp32 inputs, and any of them with the keys in splits.
enum class Sm80Kernel { half, f32, split };

// The row of kConfigs that computes a problem, or -1.
int forward_sm80_config(const ForwardProblem& problem);

// One sentence, or empty. `targets`: what the kernels were compiled for, as in cuda_support.hpp.
std::string forward_sm80_throughput_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                                            std::string_view targets,
                                            Sm80Kernel kernel = Sm80Kernel::half);

// Whether a problem's keys are shared out to several blocks without being asked to: few queries
// against long keys that leave most of the GPU idle. Never with PlanContext::batch_invariant, as
// the choice cannot know how few there are.
bool forward_sm80_splits(const ForwardProblem& problem, const PlanContext& context);

// What the kernel of a problem looks for in every tile, given pointers at multiples of 16 bytes.
cuda::forward_sm80::throughput::Features forward_sm80_features(const ForwardProblem& problem,
                                                               bool batch_invariant);

}  // namespace flashcore
