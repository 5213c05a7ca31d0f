// Selects the instruction set of the CPU kernels, at run time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace flashcore::cpu {

// Instruction sets that kernels are compiled for, lowest first. `native` is the compiler's baseline
// on other architectures (NEON on arm64).
enum class Target : int32_t { none = 0, native, sse4, avx2, avx3, avx3_bf16, amx };

std::string_view to_string(Target target);  // "AVX3"

// The targets that this processor runs and this build has, lowest first; may be empty.
std::span<const Target> supported_targets();

// The best of supported_targets(), or the one that FLASHCORE_CPU_TARGET names if it is supported.
// The variable is read at each call, so that a test can try all targets.
Target chosen_target();

// The target for a problem with bf16 inputs, or with any other type. avx3_bf16 and amx only compute
// bf16 products; every other problem falls back to the widest fp32 target below.
Target target_for(bool bf16_inputs);

}  // namespace flashcore::cpu
