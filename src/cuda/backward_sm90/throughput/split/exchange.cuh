// The end of a tile whose queries are shared by a cluster of blocks: their sums of dK and dV are added.
//
//   consumer   | the whole cluster is done with Q, dO and dS | sends | waits, adds, stores |
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/consumer.cuh"
#include "cuda/backward_sm90/throughput/split/shape.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/tma.cuh"

namespace flashcore::cuda::backward_sm90::split {

using throughput::Consumer, throughput::Maps;

template <class S>
struct Exchange {
  const Consumer<S>& consumer;
  const Maps& maps;
  using Numbers = float[S::kDimProducts][4];

  using Task = typename S::OwnTask;
  static constexpr int kSplits = Task::splits;
  __device__ __forceinline__ const Task& task() const { return consumer.smem.task; }
  __device__ __forceinline__ int owner(Sums sums) const {
    return owner_of(sums, static_cast<int>(consumer.group), kSplits);
  }
  __device__ __forceinline__ bool is_own(Sums sums) const { return owner(sums) == task().rank; }

  __device__ __forceinline__ uint32_t received() const {
    return ptx::shared_address(&consumer.smem.task.received);
  }

  // Returns the address of a thread's numbers in the receiving block:
  // the numbers of one product are contiguous over all threads.
  __device__ __forceinline__ uint32_t place(int sender) const {
    constexpr int kGroups = groups_sent(kSplits);
    const int part = sender * kGroups + (kGroups > 1 ? static_cast<int>(consumer.group) : 0);
    return consumer.shared + S::kQ + static_cast<uint32_t>(part) * S::kSentBytes +
           ptx::thread_index() % kWarpgroupThreads * kChunkBytes;
  }

  // Waits for every consumer of the cluster: no one reads the overwritten memory any more.
  __device__ __forceinline__ void wait_for_all() const {
    const uint32_t ready = ptx::shared_address(&consumer.smem.task.ready);
    __syncwarp();
    if (Consumer<S>::lane() == 0) {
      for (int rank = 0; rank < kSplits; ++rank) {
        ptx::mbarrier_arrive_cluster(ptx::cluster_address(ready, static_cast<uint32_t>(rank)));
      }
    }
    ptx::mbarrier_wait_cluster(ready, 0);
  }

  __device__ __forceinline__ void send(Sums sums, const Numbers& numbers) const {
    const int to = owner(sums);
    if (to == task().rank) return;
    const auto rank = static_cast<uint32_t>(to);
    const uint32_t at = ptx::cluster_address(place(sender_of(task().rank, to)), rank);
    const uint32_t barrier = ptx::cluster_address(received(), rank);
#pragma unroll
    for (int n = 0; n < S::kDimProducts; ++n) {
      const uint32_t bits[4] = {__float_as_uint(numbers[n][0]), __float_as_uint(numbers[n][1]),
                                __float_as_uint(numbers[n][2]), __float_as_uint(numbers[n][3])};
      ptx::store_async(at + n * (kWarpgroupThreads * kChunkBytes), bits, barrier);
    }
  }

  // Adds the sums of the other blocks, always in the same order.
  __device__ __forceinline__ void receive(Numbers& numbers) const {
    ptx::mbarrier_wait_cluster(received(), 0);
    for (int sender = 0; sender < kSplits - 1; ++sender) {
      const uint32_t from = place(sender);
#pragma unroll
      for (int n = 0; n < S::kDimProducts; ++n) {
        const uint4 bits = ptx::load_shared_x4(from + n * (kWarpgroupThreads * kChunkBytes));
        numbers[n][0] += __uint_as_float(bits.x);
        numbers[n][1] += __uint_as_float(bits.y);
        numbers[n][2] += __uint_as_float(bits.z);
        numbers[n][3] += __uint_as_float(bits.w);
      }
    }
  }

  __device__ __forceinline__ bool all_finite(const Numbers& numbers) const {
    float zero = 0;  // or NaN
#pragma unroll
    for (int n = 0; n < S::kDimProducts; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) zero = fmaf(numbers[n][e], 0, zero);
    }
    return zero == 0;
  }

  // Stores the consumer's 64 rows through the tile at `staged`, which is no longer read.
  __device__ __forceinline__ void store(const Numbers& numbers, uint32_t staged, float scale,
                                        const CUtensorMap& map) const {
    if (!all_finite(numbers)) atomicExch(consumer.params.not_finite + consumer.smem.tile, 1U);
    consumer.stage_rows(staged, numbers, scale);
    ptx::fence_proxy_async();
    const auto group = static_cast<int>(consumer.group);
    ptx::named_barrier_sync(throughput::kConsumerBarrier + group, kWarpgroupThreads);
    if (ptx::thread_index() % kWarpgroupThreads != 0) return;
    const int row = task().tile * throughput::kBlockKeys + group * throughput::kWarpgroupKeys;
    if (row >= consumer.params.seqlen_kv) return;
    using KTile = typename S::KTile;
    const uint32_t from = consumer.shared + staged +
                          consumer.group * (throughput::kWarpgroupKeys * KTile::kPanelRowBytes);
#pragma unroll
    for (int panel = 0; panel < KTile::kPanels; ++panel) {
      ptx::tma_store_4d(&map, from + panel * KTile::kPanelBytes, panel * throughput::kPanelColumns,
                        row, task().kv_head, task().batch);
    }
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  }

  __device__ __forceinline__ void run(Numbers& dk, Numbers& dv) const {
    wait_for_all();
    send(Sums::dv, dv);
    send(Sums::dk, dk);
    if (is_own(Sums::dv)) {
      receive(dv);
      store(dv, S::kV, 1, maps.dv);
    } else if (is_own(Sums::dk)) {
      receive(dk);
      store(dk, S::kK, consumer.params.scale, maps.dk);
    }
  }
};

}  // namespace flashcore::cuda::backward_sm90::split
