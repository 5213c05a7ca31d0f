// Conversions between number formats and packed arithmetic, over all inputs or over hashed bits, and
// the special functions, which are approximate.
#include <cstdint>
#include <vector>

#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/packed_fma.cuh"
#include "cuda/ptx/tf32.cuh"
#include "recorded.hpp"

namespace flashcore::recorded {
namespace {

using namespace cuda;

constexpr uint32_t kThreads = 128, kWords = 1 << 14, kAll16 = 1 << 16, kFewWords = 100,
                   kSpecials = 16;

enum class Function {
  pack_f16,
  pack_bf16,
  pack_e4m3,
  e4m3_to_f16,
  f16_to_float,
  bf16_to_float,
  round_to_tf32,
  round_special_to_tf32,
  fma_f16,
  fma_bf16,
  exp2,
  log2,
  reciprocal,
};

// fp32 numbers near the range of the narrow formats: the exponents 2^-32 to 2^31, and every 16th of
// any bits.
__device__ float hashed_float(uint32_t stream, uint32_t index) {
  const uint32_t bits = hashed(stream, index);
  if (index % 16 == 0) return __uint_as_float(bits);
  return __uint_as_float((bits & 0x807fffffu) | (95u + hashed(stream + 1, index) % 64) << 23);
}
__device__ float hashed_between(uint32_t index, float low, float high) {
  return low + (high - low) * static_cast<float>(hashed(20, index) >> 8) / 16777216.0F;
}

// NaN whose payload tf32 has no bits for, and numbers that round beyond fp32's range or are
// subnormal.
__device__ float special_number(uint32_t index) {
  constexpr uint32_t kBits[kSpecials] = {0x7f800000, 0x7f800001, 0xff800001, 0x7f801fff,
                                         0x7f802000, 0x7fffffff, 0x7fc00000, 0xffc00001,
                                         0x7f7fffff, 0xff7ff000, 0x7f7fefff, 0x00000fff,
                                         0x00001000, 0x80001000, 0x007fffff, 0x00000001};
  return __uint_as_float(kBits[index]);
}

template <Function kFunction>
__device__ uint32_t value_at(uint32_t i) {
  const auto x = [&](uint32_t n) { return hashed_float(21, 4 * i + n); };
  const auto word = [&](uint32_t n) { return hashed(23, 4 * i + n); };
  switch (kFunction) {
    case Function::pack_f16:
      return ptx::pack_f16x2(x(0), x(1));
    case Function::pack_bf16:
      return ptx::pack_bf16x2(x(0), x(1));
    case Function::pack_e4m3:
      return ptx::pack_e4m3x4(x(0), x(1), x(2), x(3));
    case Function::e4m3_to_f16:
      return ptx::e4m3x2_to_f16x2(i);
    case Function::f16_to_float:
      return __float_as_uint(ptx::f16_to_float(static_cast<uint16_t>(i)));
    case Function::bf16_to_float:
      return __float_as_uint(ptx::bf16_to_float(static_cast<uint16_t>(i)));
    case Function::round_to_tf32:
      return __float_as_uint(ptx::round_to_tf32(x(0)));
    case Function::round_special_to_tf32:
      return __float_as_uint(ptx::round_to_tf32(special_number(i)));
    case Function::fma_f16:
      return ptx::fma_f16x2(word(0), word(1), word(2));
    case Function::fma_bf16:
      return ptx::fma_bf16x2(word(0), word(1), word(2));
    case Function::exp2:
      return __float_as_uint(ptx::exp2_approx(hashed_between(i, -140, 20)));
    case Function::log2:
      return __float_as_uint(ptx::log2_approx(hashed_between(i, 0, 4)));
    case Function::reciprocal:
      return __float_as_uint(ptx::reciprocal_approx(hashed_between(i, 0.25F, 1000)));
  }
  return 0;
}

template <Function kFunction>
__global__ void evaluate(uint32_t count, uint32_t* out) {
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) out[i] = value_at<kFunction>(i);
}

template <Function kFunction>
Case function_case(const char* name, uint32_t count, double tolerance = 0, double least = 0) {
  return {name,
          [count] {
            return words_of(evaluate<kFunction>, {.grid = dim3(1), .threads = kThreads}, count,
                            count);
          },
          tolerance, least};
}

}  // namespace

std::vector<Case> format_cases() {
  constexpr double kApproximate = 5e-7;
  return {
      function_case<Function::pack_f16>("cvt.rn.f16x2.f32", kWords),
      function_case<Function::pack_bf16>("cvt.rn.bf16x2.f32", kWords),
      function_case<Function::pack_e4m3>("cvt.rn.satfinite.e4m3x2.f32", kWords),
      function_case<Function::e4m3_to_f16>("cvt.rn.f16x2.e4m3x2", kAll16),
      function_case<Function::f16_to_float>("cvt.f32.f16", kAll16),
      function_case<Function::bf16_to_float>("bf16 to fp32", kAll16),
      function_case<Function::round_to_tf32>("cvt.rna.tf32.f32", kWords),
      function_case<Function::round_special_to_tf32>("cvt.rna.tf32.f32 of special numbers",
                                                     kSpecials),
      function_case<Function::fma_f16>("fma.rn.f16x2", kWords),
      function_case<Function::fma_bf16>("fma.rn.bf16x2", kWords),
      function_case<Function::exp2>("ex2.approx.ftz.f32", kFewWords, kApproximate),
      function_case<Function::log2>("lg2.approx.ftz.f32", kFewWords, kApproximate, 1),
      function_case<Function::reciprocal>("rcp.approx.ftz.f32", kFewWords, kApproximate),
  };
}

}  // namespace flashcore::recorded
