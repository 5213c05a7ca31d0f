// The functions that device code may call without a header: arithmetic, bits, collectives, atomics.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/barrier.hpp"
#include "engine/collective.hpp"
#include "engine/global_memory.hpp"
#include "engine/global_order.hpp"

using std::isfinite, std::isinf, std::isnan;

template <class A, class B>
constexpr auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
// A GPU has one NaN, whatever the bits of the argument.
inline float __log2f(float x) { return x != x ? __uint_as_float(0x7fffffffU) : std::log2(x); }
inline float __logf(float x) { return std::log(x); }
// Sine and cosine of pi x.
inline void sincospi(double x, double* sine, double* cosine) {
  constexpr double kPi = 3.14159265358979323846;
  *sine = std::sin(kPi * x), *cosine = std::cos(kPi * x);
}
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(x)) + 1; }

// Byte i of the result is the byte of {b, a} selected by the i-th four bits of `selector`.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t byte = selector >> (4 * i) & 7;
    result |= static_cast<uint32_t>(both >> (8 * byte) & 0xff) << (8 * i);
  }
  return result;
}
// Sets all bits of each half, or byte, that is equal.
inline uint32_t __vcmpeq2(uint32_t a, uint32_t b) {
  const uint32_t differs = a ^ b;
  return ((differs & 0xffffu) == 0 ? 0xffffu : 0) | (differs >> 16 == 0 ? 0xffff0000u : 0);
}
inline uint32_t __vcmpeq4(uint32_t a, uint32_t b) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 32; i += 8) {
    if (((a ^ b) >> i & 0xff) == 0) result |= 0xffu << i;
  }
  return result;
}

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline bool __isGlobal(const void* p) { return !::flashcore::sim::is_shared(p); }
#if !defined(__clang__)  // which has its own
inline void __builtin_assume(bool) {}
#endif
[[noreturn]] inline void __trap(::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  ::flashcore::sim::trap(site);
}

// --- collectives ---

inline void __syncthreads(::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  ::flashcore::sim::use_barrier({"__syncthreads"}, false, site);
}
inline int __syncthreads_or(int x, ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  return ::flashcore::sim::use_barrier({"__syncthreads_or"}, x != 0, site) ? 1 : 0;
}
inline void __syncwarp(uint32_t mask = 0xffffffffu,
                       ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  ::flashcore::sim::sync_warp(mask, site);
}
inline uint32_t __ballot_sync(uint32_t mask, bool x,
                              ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  return ::flashcore::sim::ballot(mask, x, site);
}
inline int __any_sync(uint32_t mask, bool x,
                      ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  return ::flashcore::sim::ballot(mask, x, site) != 0 ? 1 : 0;
}
inline int __all_sync(uint32_t mask, bool x,
                      ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  return ::flashcore::sim::ballot(mask, !x, site) == 0 ? 1 : 0;
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t x,
                                  ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  return ::flashcore::sim::reduce_add(mask, x, site);
}

template <class T>
T __shfl_sync(uint32_t mask, T x, int lane,
              ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(
        ::flashcore::sim::shuffle(mask, std::bit_cast<uint32_t>(x), lane, site));
  } else {  // two instructions
    const auto bits = std::bit_cast<uint64_t>(x);
    const uint64_t low = ::flashcore::sim::shuffle(mask, static_cast<uint32_t>(bits), lane, site);
    const uint64_t high =
        ::flashcore::sim::shuffle(mask, static_cast<uint32_t>(bits >> 32), lane, site);
    return std::bit_cast<T>(high << 32 | low);
  }
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T x, int lanes,
                  ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  return __shfl_sync(mask, x, ::flashcore::sim::self().lane ^ lanes, site);
}
// Lanes without a source keep their own value.
template <class T>
T __shfl_up_sync(uint32_t mask, T x, unsigned lanes,
                 ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const int lane = ::flashcore::sim::self().lane, from = lane - static_cast<int>(lanes);
  return __shfl_sync(mask, x, from >= 0 ? from : lane, site);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T x, unsigned lanes,
                   ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const int lane = ::flashcore::sim::self().lane, from = lane + static_cast<int>(lanes);
  return __shfl_sync(mask, x, from < ::flashcore::sim::kLanes ? from : lane, site);
}

// --- atomics: all threads are fibers of one thread, switched only between instructions ---

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> x,
            ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const ::flashcore::sim::AtomicAccess access(p, sizeof(T), site);
  const T was = access.load(p);
  access.store(p, static_cast<T>(was + x));
  return was;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> x,
            ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const ::flashcore::sim::AtomicAccess access(p, sizeof(T), site);
  const T was = access.load(p);
  access.store(p, was < x ? x : was);
  return was;
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> x,
            ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const ::flashcore::sim::AtomicAccess access(p, sizeof(T), site);
  const T was = access.load(p);
  access.store(p, x < was ? x : was);
  return was;
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> x,
             ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const ::flashcore::sim::AtomicAccess access(p, sizeof(T), site);
  const T was = access.load(p);
  access.store(p, x);
  return was;
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> old, std::type_identity_t<T> x,
            ::flashcore::sim::Site site = ::flashcore::sim::Site::here()) {
  const ::flashcore::sim::AtomicAccess access(p, sizeof(T), site);
  const T was = access.load(p);
  if (was == old) access.store(p, x);
  return was;
}
inline void __threadfence() { ::flashcore::sim::fence_global(); }
