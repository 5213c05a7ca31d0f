// Highway for one instruction set: a file of this directory sets FLASHCORE_SIMD_TARGET and
// FLASHCORE_SIMD_NAMESPACE, then includes the rest. There is one target per translation unit,
// so that they compile in parallel. cpu/target.hpp selects the target, so that Highway's
// library is not needed.
#pragma once

// Highway's own debug checks would need its library.
#define HWY_IS_DEBUG_BUILD 0
#include <hwy/detect_targets.h>
#if defined(FLASHCORE_SIMD_TARGET)
#undef HWY_TARGET
#define HWY_TARGET FLASHCORE_SIMD_TARGET
#endif
#include <hwy/highway.h>

#include <cstdint>

#if defined(FLASHCORE_SIMD_EXTRA)  // instructions beyond Highway's target
#define FLASHCORE_SIMD_BASE_STR HWY_TARGET_STR_AVX3
#undef HWY_TARGET_STR
#define HWY_TARGET_STR FLASHCORE_SIMD_BASE_STR FLASHCORE_SIMD_EXTRA
#endif

HWY_BEFORE_NAMESPACE();
namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::RebindToSigned<F>;
using U = hn::RebindToUnsigned<F>;
using VecF = hn::Vec<F>;
using VecU = hn::Vec<U>;
inline constexpr F kF{};
inline constexpr I kI{};
inline constexpr U kU{};

inline constexpr int64_t kLanes = HWY_LANES(float);
inline constexpr int64_t kPanel = 2 * kLanes;  // columns of a packed panel

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace flashcore::cpu::FLASHCORE_SIMD_NAMESPACE
HWY_AFTER_NAMESPACE();
