// Stands for src/cuda/ptx/wgmma_majors.cuh.
#pragma once

#include <cstdint>

#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::ptx {

template <Accumulate kAccumulate, Major kMajorA, Major kMajorB, int kCount>
requires kIsWidth<kCount>
void wgmma_ss_f16(float (&d)[kCount][4], uint64_t a, uint64_t b,
                  sim::Site site = sim::Site::here()) {
  auto options = product_options<kAccumulate, kMajorB>(sim::ElementType::f16, 8 * kCount);
  options.a_is_mn_major = kMajorA == Major::mn;
  sim::issue_product(d[0], nullptr, a, b, options, site);
}
template <Accumulate kAccumulate, Major kMajorA, Major kMajorB, int kCount>
requires kIsWidth<kCount>
void wgmma_ss_bf16(float (&d)[kCount][4], uint64_t a, uint64_t b,
                   sim::Site site = sim::Site::here()) {
  auto options = product_options<kAccumulate, kMajorB>(sim::ElementType::bf16, 8 * kCount);
  options.a_is_mn_major = kMajorA == Major::mn;
  sim::issue_product(d[0], nullptr, a, b, options, site);
}

}  // namespace flashcore::cuda::ptx
