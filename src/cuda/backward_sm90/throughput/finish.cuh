// The end of a deterministic backward pass: most rows of dQ are stored already;
// this handles blocks that no tile has visited, and rows that are not finite.
#pragma once

#include <cstdint>

#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/params.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

// Calls act(item), by all threads, for each item of the block of threads that is wanted: few of them.
template <class Wanted, class Act>
__device__ __forceinline__ void for_each_wanted(int64_t items, const Wanted& wanted,
                                                const Act& act) {
  const int64_t first = int64_t{blockIdx.x} * kItems, own = first + threadIdx.x % kItems;
  uint32_t left = __ballot_sync(0xffffffffU, own < items && wanted(own));
  for (; left != 0; left &= left - 1) act(first + __ffs(static_cast<int>(left)) - 1);
}

// Returns whether a consumer found a sum of block `number` that is not finite.
__device__ __forceinline__ bool has_other_sums(const Params& p, int64_t number) {
  const uint32_t* const turns = p.turns + number * kConsumers;
  return turns[0] == kNotFinite || turns[1] == kNotFinite;
}

// Handles the remaining items, kItems per thread block.
template <class P, class IsUnvisited, class FinishBlock, class ComputeTile>
__device__ __forceinline__ void finish(const P& p, int64_t blocks, const IsUnvisited& is_unvisited,
                                       const FinishBlock& finish_block,
                                       const ComputeTile& compute_tile) {
  for_each_wanted(
      blocks + p.order.size(),
      [&](int64_t item) {
        return item < blocks ? is_unvisited(item) || has_other_sums(p, item)
                             : p.not_finite[item - blocks] != 0;
      },
      [&](int64_t item) {
        if (item < blocks) {
          finish_block(item);
        } else {
          compute_tile(static_cast<uint32_t>(item - blocks));
        }
      });
}

// Returns whether a row of `columns` 16-bit numbers at `row` has one that is not finite. Called by a warp.
template <class Element>
__device__ __forceinline__ bool is_not_finite(const uint16_t* row, int columns, int lane) {
  bool found = false;
  for (int i = lane; i < columns; i += kWarpThreads) {
    found = found || Element::to_float(row[i]) * 0 != 0;
  }
  return __any_sync(0xffffffffU, found);
}
__device__ __forceinline__ void store_zeros(uint16_t* row, int columns, int lane) {
  for (int i = 8 * lane; i < columns; i += 8 * kWarpThreads) {
    *reinterpret_cast<uint4*>(row + i) = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace flashcore::cuda::backward_sm90::throughput
