// Stands for src/cuda/ptx/wgmma_n256.cuh.
#pragma once

#include "cuda/ptx/wgmma.cuh"

namespace flashcore::cuda::ptx {

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

}  // namespace flashcore::cuda::ptx
