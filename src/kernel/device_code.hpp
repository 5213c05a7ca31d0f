// Which GPUs the code of a CUDA kernel runs on. No CUDA header is needed here, so that refusals are
// tested in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flashcore {

// What kernels that were compiled for `targets` ("80+ptx;89;90a") have for a compute capability (86
// for 8.6). Code for 8.0 runs on every 8.x from there on, code for 9.0a only on 9.0; PTX for 8.0
// is compiled by the driver, when it is first used, for every GPU from there on.
enum class DeviceCode { none, ptx, compiled };
DeviceCode device_code(std::string_view targets, int32_t compute_capability);

// Returns whether they have any.
bool built_for(std::string_view targets, int32_t compute_capability);

// Empty when they have some, otherwise the sentence of a refusal.
std::string refuse_code(std::string_view targets, int32_t compute_capability);

// "8.6"
std::string capability_text(int32_t compute_capability);

}  // namespace flashcore
