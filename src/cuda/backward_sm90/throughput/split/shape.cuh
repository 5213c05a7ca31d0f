// The work of a backward_sm90_split block: tiles and shared memory of backward_sm90, and its part of a tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/backward_sm90/throughput/shape.cuh"
#include "cuda/backward_sm90/throughput/split/config.hpp"

namespace flashcore::cuda::backward_sm90::split {

template <int kSplits>
struct SplitTask : throughput::Task {
  static constexpr int splits = kSplits;  // blocks of the cluster
  int rank;                               // of this block; `steps` are its own
};

template <int kConfigIndex, class Element, int kSplits>
struct Shape : throughput::Shape<kConfigIndex, Element, true> {
  using Base = throughput::Shape<kConfigIndex, Element, true>;
  using OwnTask = SplitTask<kSplits>;
  static constexpr bool kSharesTask = true;
  // In a cluster, an address also names the block, in bits that do not fit a descriptor.
  static constexpr uint32_t kOperandBits = 0x3ffff;
  static constexpr uint32_t kSentBytes = sent_bytes(Base::kConfig);
  static constexpr uint32_t kReceivedBytes = received_bytes(Base::kConfig, kSplits);

  // tile_here: rank 0 sends it to all. ready: counts the cluster's consumers
  // that are done with Q, dO and dS. received: bytes of sums from other blocks.
  struct ClusterTask : OwnTask {
    uint64_t tile_here, ready, received;
  };
  using Shared = typename Base::template SharedOf<ClusterTask>;
  static_assert(sizeof(Shared) <= static_cast<std::size_t>(Base::kConfig.shared_bytes()));

  __device__ static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::dynamic_shared()); }
};

}  // namespace flashcore::cuda::backward_sm90::split
