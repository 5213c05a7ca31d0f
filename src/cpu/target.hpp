// Which instruction set the CPU kernels use here, decided once at run time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace flashcore::cpu {

// Instruction sets that kernels are compiled for, lowest first. `native` is what the compiler's own
// baseline gives on other architectures (NEON on arm64).
enum class Target : int32_t { none = 0, native, sse4, avx2, avx3, avx3_bf16, amx };

std::string_view to_string(Target target);  // "AVX3"

// Everything that this processor runs and this build has, lowest first; empty when nothing fits.
std::span<const Target> supported_targets();

// The best of supported_targets(), or the one that FLASHCORE_CPU_TARGET names if it is supported.
// Asked again at each call, so that a test can walk through all of them.
Target chosen_target();

// What the SIMD backend calls for a problem whose inputs are bf16, or any other type: avx3_bf16 and
// amx only compute bf16 products, everything else falls back to the widest fp32 target below.
Target target_for(bool bf16_inputs);

}  // namespace flashcore::cpu
