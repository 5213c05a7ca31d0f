// What all warpgroups of a block know: its work, and where things are in its shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/mla_sm90/latent/config.hpp"
#include "cuda/mla_sm90/latent/params.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/registers.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/ring.hpp"

namespace flashcore::cuda::mla_sm90::latent {

using Ring = tile::Ring<kSlots>;

struct Block {
  uint32_t shared;  // where its shared memory begins
  int tile;         // of rows
  int query, first_head;
  Unit* units;
  int count;  // of units

  __device__ uint32_t slot(uint32_t i) const { return shared + i * kSlotBytes; }
  __device__ uint32_t full(uint32_t slot) const {
    return barrier(offsetof(BlockState, full), slot);
  }
  __device__ uint32_t ready(uint32_t slot) const {
    return barrier(offsetof(BlockState, ready), slot);
  }
  __device__ uint32_t go(uint32_t slot) const { return barrier(offsetof(BlockState, go), slot); }
  __device__ uint32_t empty(uint32_t slot) const {
    return barrier(offsetof(BlockState, empty), slot);
  }

  // Where a row's partial result is.
  __device__ int64_t partial_row(const Params& p, int of_slot, int row) const {
    return (int64_t{of_slot} * p.tiles + tile) * kRows + row;
  }

 private:
  __device__ uint32_t barrier(size_t of, uint32_t slot) const {
    return shared + kBlockStateAt + static_cast<uint32_t>(of) + 8 * slot;
  }
};

// Computed where it is needed: registers are for accumulators.
__device__ __forceinline__ Block this_block(const Params& p, int count) {
  const auto tile = static_cast<int>(ptx::block_index());
  const int query = tile / p.tiles_of_query;
  return {ptx::shared_address(ptx::dynamic_shared()),
          tile,
          query,
          (tile - query * p.tiles_of_query) * kRows,
          p.units + (int64_t{tile} * p.shares + ptx::block_index_y()) * p.most_units,
          count};
}

__device__ __forceinline__ BlockState& block_state() {
  return *reinterpret_cast<BlockState*>(ptx::dynamic_shared() + kBlockStateAt);
}

// A value that is the same in all lanes of the warp, in uniform registers.
__device__ __forceinline__ int uniform(int x) {
  return static_cast<int>(ptx::uniform(static_cast<uint32_t>(x)));
}

// A descriptor, `bytes` further on.
constexpr uint64_t advanced(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// The rows of a slot by columns from a panel on, as an operand whose columns run along k.
constexpr uint64_t rows_of_slot(uint32_t slot, int panel) {
  return tile::smem_descriptor(slot + static_cast<uint32_t>(panel) * kPanelBytes, 16, kGroupBytes,
                               tile::DescriptorSwizzle::span_128);
}

// Returns whether a lane writes its rows' factors, or reads them for others. Each of these arrives at barriers:
// racecheck does not follow one arrival on behalf of a warp.
inline constexpr uint32_t kFactorLanes = 8;
__device__ __forceinline__ bool has_factors(int lane) { return lane % 4 == 0; }

// A row of a lane, of the two that it has in accumulators.
__device__ __forceinline__ int row_of(int warp, int lane, int which) {
  return 16 * warp + lane / 4 + 8 * which;
}

}  // namespace flashcore::cuda::mla_sm90::latent
