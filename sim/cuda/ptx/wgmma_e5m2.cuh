// Stands for src/cuda/ptx/wgmma_e5m2.cuh.
#pragma once

#include "cuda/ptx/wgmma_e4m3.cuh"
#include "engine/byte_types.hpp"

namespace flashcore::cuda::ptx {

inline sim::ProductOptions e5m2_options(sim::ElementType type, int columns, Accumulate accumulate) {
  return {.type = type, .columns = columns, .overwrite = accumulate == Accumulate::overwrite};
}

inline void wgmma_ss_e5m2(float (&d)[16][4], uint64_t a, uint64_t b, Accumulate accumulate,
                          sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], nullptr, a, b, e5m2_options(sim::kE5M2Elements, 128, accumulate), site);
}
template <int kCount>
requires kIsByteWidth<kCount>
void wgmma_rs_e4m3_e5m2(float (&d)[kCount][4], const uint32_t (&a)[4], uint64_t b,
                        Accumulate accumulate, sim::Site site = sim::Site::here()) {
  sim::issue_product(d[0], a, 0, b, e5m2_options(sim::kE4M3WithE5M2, 8 * kCount, accumulate), site);
}

}  // namespace flashcore::cuda::ptx
