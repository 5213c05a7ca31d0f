// Copies what steps have of a bias and of a mask's bits, a step ahead of the consumers: one thread.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::backward_sm90::throughput {

template <class S>
struct PairLoader {
  static constexpr int kGroups = S::kBlockQ / attention::kMaskWordBits;
  static constexpr uint32_t kGroupBytes = kBlockKeys * sizeof(uint32_t);
  static constexpr uint32_t kPanelBytes = S::DsTile::kPanelBytes;  // 128 bytes of each query

  uint32_t shared;
  const PairParams& p;
  const EntryTask& task;
  Walk<S> walk;  // to the next step

  __device__ __forceinline__ void load_bias(uint32_t barrier) const {
    const PairMatrix& bias = p.pairs.bias;
    const int keys = 128 / p.pairs.bias_element_bytes();  // of a panel
    for (int first = 0, panel = 0; first < kBlockKeys; first += keys, ++panel) {
      ptx::tma_load_4d(shared + S::kBias + panel * kPanelBytes, &p.pairs.bias_map, barrier,
                       task.tile * kBlockKeys + first, walk.block * S::kBlockQ,
                       bias.head == 0 ? 0 : walk.head, bias.batch == 0 ? 0 : S::pair_terms().entry);
    }
  }
  __device__ __forceinline__ void load_bits(uint32_t barrier) const {
    const attention::MaskBits& bits = p.pairs.bits;
    const uint32_t* from = bits.words + S::pair_terms().entry * bits.batch + walk.head * bits.head +
                           walk.block * kGroups * bits.query + task.tile * kBlockKeys;
#pragma unroll
    for (int group = 0; group < kGroups; ++group, from += bits.query) {
      ptx::bulk_load(shared + S::kBits + group * kGroupBytes, from, kGroupBytes, barrier);
    }
  }

  __device__ __forceinline__ void run() {
    if (!p.pairs.has_slot()) return;
    const uint32_t full = shared + S::kPairFull;
    const bool has_bits = p.pairs.mask.data != nullptr;
    const uint32_t bytes =
        (p.pairs.bias_tiles ? S::kBlockQ * kBlockKeys * p.pairs.bias_element_bytes() : 0U) +
        (has_bits ? kGroups * kGroupBytes : 0U);
#pragma unroll 1
    for (int number = 0; number < task.steps; ++number) {
      if (number > 0) {
        walk.advance();
        ptx::mbarrier_wait(shared + S::kPairEmpty, (number - 1) % 2);
      }
      ptx::mbarrier_arrive_expect(full, bytes);
      if (p.pairs.bias_tiles) load_bias(full);
      if (has_bits) load_bits(full);
    }
  }
};

}  // namespace flashcore::cuda::backward_sm90::throughput
