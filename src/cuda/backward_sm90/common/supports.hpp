// What kernels of backward_sm90 refuse alike. No CUDA header is needed here, so that refusals are
// tested in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// TMA copies columns by so many, and fills the tiles' columns past them with zeros.
inline constexpr int64_t kColumnStep = 8;

// Rows of all tiles of `block` queries or keys of a head, over all batch entries.
int64_t query_rows(const ForwardProblem& p, int64_t block);
int64_t key_rows(const ForwardProblem& p, int64_t block);

// One sentence, or empty. `targets`: what the kernel was compiled for, as in device_code.hpp.
// `sizes`: the kernel's own sentence about head dimensions, or empty.
std::string common_refusal(const BackwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets, std::string_view sizes);

}  // namespace flashcore::cuda::backward_sm90
