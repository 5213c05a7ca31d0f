// Stands for src/cuda/ptx/wgmma.cuh, and for the products that tools/wgmma.py makes.
#pragma once

#include <cstdint>

#include "engine/byte_types.hpp"
#include "engine/products.hpp"

namespace flashcore::cuda::ptx {

inline constexpr bool kHasWgmma = true;

enum class Accumulate : int { overwrite = 0, add = 1 };
enum class Major : int { k = 0, mn = 1 };

inline void warpgroup_fence(sim::Site site = sim::Site::here()) { sim::fence_products(site); }
inline void warpgroup_commit(sim::Site site = sim::Site::here()) { sim::commit_products(site); }
template <int kPending>
void warpgroup_wait(sim::Site site = sim::Site::here()) {
  sim::wait_products(kPending, site);
}
template <int kCount>
void warpgroup_pin(float (&)[kCount][4]) {}

template <Accumulate kAccumulate, Major kMajorB, Major kMajorA = Major::k>
constexpr sim::ProductOptions product_options(sim::ElementType type, int columns) {
  return {.type = type,
          .columns = columns,
          .overwrite = kAccumulate == Accumulate::overwrite,
          .b_is_mn_major = kMajorB == Major::mn,
          .a_is_mn_major = kMajorA == Major::mn};
}

// True for the widths of tools/wgmma.py.
template <int kCount>
inline constexpr bool kIsWidth = kCount == 8 || kCount == 10 || kCount == 12 || kCount == 14 ||
                                 kCount == 16 || kCount == 20 || kCount == 24;

template <Accumulate kAccumulate, Major kMajorB, Major kMajorA = Major::k, int kCount>
requires kIsWidth<kCount>
void wgmma_ss_f16(float (&d)[kCount][4], uint64_t a, uint64_t b,
                  sim::Site site = sim::Site::here()) {
  constexpr auto kOptions =
      product_options<kAccumulate, kMajorB, kMajorA>(sim::ElementType::f16, 8 * kCount);
  sim::issue_product(d[0], nullptr, a, b, kOptions, site);
}
template <Accumulate kAccumulate, Major kMajorB, int kCount>
requires kIsWidth<kCount>
void wgmma_rs_f16(float (&d)[kCount][4], const uint32_t (&a)[4], uint64_t b,
                  sim::Site site = sim::Site::here()) {
  constexpr auto kOptions =
      product_options<kAccumulate, kMajorB>(sim::ElementType::f16, 8 * kCount);
  sim::issue_product(d[0], a, 0, b, kOptions, site);
}
template <Accumulate kAccumulate, Major kMajorB, Major kMajorA = Major::k, int kCount>
requires kIsWidth<kCount>
void wgmma_ss_bf16(float (&d)[kCount][4], uint64_t a, uint64_t b,
                   sim::Site site = sim::Site::here()) {
  constexpr auto kOptions =
      product_options<kAccumulate, kMajorB, kMajorA>(sim::ElementType::bf16, 8 * kCount);
  sim::issue_product(d[0], nullptr, a, b, kOptions, site);
}
template <Accumulate kAccumulate, Major kMajorB, int kCount>
requires kIsWidth<kCount>
void wgmma_rs_bf16(float (&d)[kCount][4], const uint32_t (&a)[4], uint64_t b,
                   sim::Site site = sim::Site::here()) {
  constexpr auto kOptions =
      product_options<kAccumulate, kMajorB>(sim::ElementType::bf16, 8 * kCount);
  sim::issue_product(d[0], a, 0, b, kOptions, site);
}

template <Major kMajorB>
sim::ProductOptions n256_options(sim::ElementType type, Accumulate accumulate) {
  return {.type = type,
          .columns = 256,
          .overwrite = accumulate == Accumulate::overwrite,
          .b_is_mn_major = kMajorB == Major::mn};
}

template <Major kMajorB>
void wgmma_ss_f16(float (&d)[32][4], uint64_t a, uint64_t b, Accumulate accumulate,
                  sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], nullptr, a, b, n256_options<kMajorB>(sim::ElementType::f16, accumulate),
                     site);
}
template <Major kMajorB>
void wgmma_ss_bf16(float (&d)[32][4], uint64_t a, uint64_t b, Accumulate accumulate,
                   sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], nullptr, a, b, n256_options<kMajorB>(sim::ElementType::bf16, accumulate),
                     site);
}

inline sim::ProductOptions byte_options(sim::ElementType type, int columns, Accumulate accumulate) {
  return {.type = type, .columns = columns, .overwrite = accumulate == Accumulate::overwrite};
}

template <int kCount>
void wgmma_ss_e4m3(float (&d)[kCount][4], uint64_t a, uint64_t b, Accumulate accumulate,
                   sim::Site site = sim::Site::here()) {
  const auto options = byte_options(sim::ElementType::e4m3, 8 * kCount, accumulate);
  sim::issue_product(d[0], nullptr, a, b, options, site);
}
// True for the widths with A of 8 bits in registers.
template <int kCount>
inline constexpr bool kIsByteWidth = kCount == 9 || kCount == 17;
template <int kCount>
requires kIsByteWidth<kCount>
void wgmma_rs_e4m3(float (&d)[kCount][4], const uint32_t (&a)[4], uint64_t b, Accumulate accumulate,
                   sim::Site site = sim::Site::here()) {
  const auto options = byte_options(sim::ElementType::e4m3, 8 * kCount, accumulate);
  sim::issue_product(d[0], a, 0, b, options, site);
}

inline void wgmma_ss_e5m2(float (&d)[16][4], uint64_t a, uint64_t b, Accumulate accumulate,
                          sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], nullptr, a, b, byte_options(sim::kE5M2Elements, 128, accumulate), site);
}
template <int kCount>
requires kIsByteWidth<kCount>
void wgmma_rs_e4m3_e5m2(float (&d)[kCount][4], const uint32_t (&a)[4], uint64_t b,
                        Accumulate accumulate, sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], a, 0, b, byte_options(sim::kE4M3WithE5M2, 8 * kCount, accumulate), site);
}

}  // namespace flashcore::cuda::ptx
