// The limits of backward_sm90_split, and the number of splits of a
// problem. Needs no CUDA header, so that both are tested in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90::split {

// Returns one sentence that says why the kernel cannot compute the problem, or an empty string.
std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets);

// Returns the number of KV tiles of a problem, in all heads.
int64_t tiles_of(const ForwardProblem& p);

// Returns the number of blocks that share a KV tile: the one with the fewest steps.
int splits_of(const ForwardProblem& p, int multiprocessors);

}  // namespace flashcore::cuda::backward_sm90::split
