// The two products of a warpgroup's step: S = Q K^T and O += P V.
#pragma once

#include <cstdint>

#include "cuda/forward_sm90/common/softmax.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"

namespace flashcore::cuda::forward_sm90 {

// S = Q K^T, of tiles at two shared-memory addresses; not complete on return.
template <class S>
__device__ __forceinline__ void start_scores(Scores<S>& s, uint32_t q_address, uint32_t k_address) {
  using ptx::Accumulate;
  // Steps are added to whole descriptors: an address computation in each step would delay them.
  const uint64_t q = tile::k_major_descriptor<typename S::Tile>(q_address, 0, 0);
  const uint64_t k = tile::k_major_descriptor<typename S::Tile>(k_address, 0, 0);
  ptx::warpgroup_pin(s);
  ptx::warpgroup_fence();
#pragma unroll
  for (int step = 0; step < S::kQkSteps; ++step) {
    const uint64_t a = q + (tile::k_major_step<typename S::Tile>(step) >> 4);
    const uint64_t b = k + (tile::k_major_step<typename S::Tile>(step) >> 4);
    if (step == 0) {
      S::Element::template multiply_ss<Accumulate::overwrite>(s, a, b);
    } else {
      S::Element::template multiply_ss<Accumulate::add>(s, a, b);
    }
  }
  ptx::warpgroup_commit();
}

// O = P V or O += P V, not complete on return.
template <class S, ptx::Accumulate kFirst>
__device__ __forceinline__ void start_output(Partial<S>& w, const Probabilities<S>& p,
                                             uint32_t v_address) {
  const uint64_t v = tile::mn_major_descriptor<typename S::Tile>(v_address, 0);
  if (kFirst == ptx::Accumulate::overwrite) ptx::warpgroup_pin(w.o);
  ptx::warpgroup_fence();
#pragma unroll
  for (int step = 0; step < S::kKeySteps; ++step) {
    const uint64_t b = v + static_cast<uint32_t>(step * 16 * S::Tile::kPanelRowBytes / 16);
    if (step == 0) {
      S::Element::template multiply_rs<kFirst>(w.o, p[step], b);
    } else {
      S::Element::template multiply_rs<ptx::Accumulate::add>(w.o, p[step], b);
    }
  }
  ptx::warpgroup_commit();
}

}  // namespace flashcore::cuda::forward_sm90
