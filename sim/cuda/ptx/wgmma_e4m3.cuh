// Stands for src/cuda/ptx/wgmma_e4m3.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::ptx {

inline sim::ProductOptions e4m3_options(int columns, Accumulate accumulate) {
  return {.type = sim::ElementType::e4m3,
          .columns = columns,
          .overwrite = accumulate == Accumulate::overwrite};
}

template <int kCount>
void wgmma_ss_e4m3(float (&d)[kCount][4], uint64_t a, uint64_t b, Accumulate accumulate,
                   sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], nullptr, a, b, e4m3_options(8 * kCount, accumulate), site);
}
// True for the widths that src/cuda/ptx supports.
template <int kCount>
inline constexpr bool kIsByteWidth = kCount == 9 || kCount == 17;
template <int kCount>
requires kIsByteWidth<kCount>
void wgmma_rs_e4m3(float (&d)[kCount][4], const uint32_t (&a)[4], uint64_t b, Accumulate accumulate,
                   sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], a, 0, b, e4m3_options(8 * kCount, accumulate), site);
}

}  // namespace flashcore::cuda::ptx
