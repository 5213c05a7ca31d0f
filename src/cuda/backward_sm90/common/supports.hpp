// Limits shared by the kernels of backward_sm90. Needs no
// CUDA header, so that refusals are tested in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// TMA copies columns in units of this, and fills the tiles' further columns with zeros.
inline constexpr int64_t kColumnStep = 8;

// The number of rows in all tiles of `block` queries or keys per head, over all sequences.
int64_t query_rows(const ForwardProblem& p, int64_t block);
int64_t key_rows(const ForwardProblem& p, int64_t block);

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
// `sizes`: the kernel's own sentence about head dimensions, or an empty string.
std::string common_refusal(const BackwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets, std::string_view sizes);

}  // namespace flashcore::cuda::backward_sm90
