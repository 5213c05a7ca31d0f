// decode_sm80: a block processes units of rows and keys one by one (walk.cuh), its rings share the keys
// of a unit (attend.cuh), and their results are written to memory, where combine.cuh combines them.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/inputs.cuh"
#include "cuda/decode_sm80/split_kv/attend.cuh"
#include "cuda/decode_sm80/split_kv/keys.cuh"
#include "cuda/decode_sm80/split_kv/merge.cuh"
#include "cuda/decode_sm80/split_kv/walk.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace flashcore::cuda::decode_sm80::split_kv {

using attention::decode::query_pair;

// Loads the unit's rows of Q as fragments, which all warps need: each warp loads some steps.
template <Config kConfig>
__device__ __forceinline__ void load_query(const Params& p, const Unit& unit, uint4* fragments) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto* const q = static_cast<const uint16_t*>(p.q.data);
  const uint16_t* rows[2];
#pragma unroll
  for (int slot = 0; slot < 2; ++slot) {
    const int in_tile = lane / 4 + 8 * slot;
    const int row = unit.first_row + min(in_tile, unit.rows - 1);
    const auto query = static_cast<int>(p.by_group.divide(static_cast<uint32_t>(row)));
    const int head = unit.kv_head * p.group + row - query * p.group;
    rows[slot] = q + (unit.batch * p.q.batch + head * p.q.head +
                      int64_t{unit.at.entry.q_row + query} * p.q.row);
  }
#pragma unroll
  for (int i = 0; i < kConfig.head_dim_qk / 16; i += kConfig.warps) {
    const int step = i + warp;
    if (kConfig.head_dim_qk / 16 % kConfig.warps != 0 && step >= kConfig.head_dim_qk / 16) break;
    // See attend.cuh for the order of dimensions.
    const int first = 16 * step + (kConfig.kv_bytes == 1 ? 4 : 2) * (lane % 4);
    const int second = first + (kConfig.kv_bytes == 1 ? 2 : 8);
    fragments[32 * step + lane] =
        make_uint4(query_pair(p, rows[0], first), query_pair(p, rows[1], first),
                   query_pair(p, rows[0], second), query_pair(p, rows[1], second));
  }
}

// Processes a warp's tiles of a unit.
template <Config kConfig, class Element>
__device__ __forceinline__ void attend(const ParamsOf<kConfig>& p, const Unit& unit,
                                       Accumulators<kConfig>& sums, uint4* fragments,
                                       const Ring<kConfig>& ring) {
  constexpr int kStep = kConfig.rings() * kConfig.tile_keys;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = unit.begin + this_ring<kConfig>() * kConfig.tile_keys;
  Place places[kConfig.stages];
#pragma unroll
  for (int stage = 0; stage < kConfig.stages; ++stage) {
    places[stage] = ring.find(first + stage * kStep);
  }
#pragma unroll
  for (int stage = 0; stage < kConfig.stages; ++stage) {
    ring.load(stage, first + stage * kStep, places[stage]);
  }
  load_query<kConfig>(p, unit, fragments);
  Place next = ring.find(first + kConfig.stages * kStep);
  Warp<kConfig, Element> math{p, unit, ring, lane};
  math.begin(sums);
  Query<kConfig> query{fragments, {}};
  __syncthreads();  // Q is there
  query.hold(lane);

  int stage = 0;
#pragma unroll 1
  for (int key = first; key < unit.end; key += kStep) {
    typename Warp<kConfig, Element>::Pairs pairs;
    math.read_pairs(pairs, key);
    ptx::cp_async_wait<kConfig.stages - 1>();
    ring.meet();
    math.process_tile(sums, query, pairs, stage, key);
    ring.meet();  // the stage has been read
    ring.load(stage, key + kConfig.stages * kStep, next);
    next = ring.find(key + (kConfig.stages + 1) * kStep);
    stage = stage + 1 == kConfig.stages ? 0 : stage + 1;
  }
}

// Takes an index, since nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(),
                                  kConfigs[kConfigIndex].blocks_per_sm)
    decode_kernel(const __grid_constant__ ParamsOf<kConfigs[kConfigIndex]> p) {
  constexpr Config kConfig = kConfigs[kConfigIndex];
  unsigned char* const shared = ptx::dynamic_shared();
  unsigned char* const rings = shared + kConfig.q_bytes();
  auto* const scales = reinterpret_cast<float*>(rings + kConfig.all_ring_bytes());
  auto* const outputs = reinterpret_cast<float*>(rings);
  auto& rows = ptx::static_shared<RingRows<kConfig.rings()>>();
  const int lane = static_cast<int>(threadIdx.x) % 32, number = this_ring<kConfig>();

  Walk<kConfig.threads()> walk(p);
  const Unit& unit = this_unit();
  while (walk.find_next()) {
    Accumulators<kConfig> sums;
    const Ring<kConfig> ring{p, unit, rings + number * kConfig.ring_bytes(),
                             scales + number * 2 * kConfig.stages * kConfig.tile_keys, lane};
    attend<kConfig, Element>(p, unit, sums, reinterpret_cast<uint4*>(shared), ring);
    __syncthreads();  // all rings have been read
    store_warp<kConfig>(sums, outputs + number * kTileRows * kConfig.head_dim_v, lane);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const float sum = attention::quad_sum(sums.sum[slot]);
      if (lane % 4 != 0 || this_member<kConfig>() != 0) continue;
      rows.largest[number][lane / 4 + 8 * slot] = sums.largest[slot];
      rows.sum[number][lane / 4 + 8 * slot] = sum;
    }
    __syncthreads();
    store_unit<kConfig>(p, unit, outputs, rows);
    __syncthreads();  // the next unit's copies go there
  }
}

}  // namespace flashcore::cuda::decode_sm80::split_kv
