// A boolean mask as bits, which a launch of its own packs from bytes (mask_bits.cuh) into a workspace.
//
//   along keys      word (query, key / 32), bit key % 32: of 32 keys        queries are rows of accumulators
//   along queries   word (query / 32, key), bit query % 32: of 32 queries   keys are
//
// The bit of a visible pair is 1. Bits of keys, and along queries also of queries, that fill up a
// multiple of 128 are 0, so that tiles need no test. constexpr: shared by kernels and host tests.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

enum class BitsAlong : int32_t { keys, queries };

inline constexpr int kMaskWordBits = 32;
inline constexpr int kMaskTile = 128;  // what bits are filled up to
// What a warp packs: so many queries and keys.
inline constexpr int kPackedQueries = 32, kPackedKeys = 128;
inline constexpr int kPackWarps = 8;  // of a block

struct MaskBits {
  uint32_t* words;
  // Strides in words; 0 where the mask is the same for all. Along keys: from a query to the next,
  // and from 32 keys to the next; along queries: from 32 queries to the next, and from a key.
  int64_t batch, head, query, key;
};

// The parameters of the launch that packs.
struct PackMask {
  const uint8_t* mask;  // 0: not visible
  int64_t batch, head, query, key;
  bool four_keys;  // of a query may be read at once
  // The distinct ones, 1 where the mask is the same for all; keys are never counted as one.
  int batches, heads, queries, keys;
  int query_groups, key_groups;  // of kPackedQueries and kPackedKeys, filled up
  BitsAlong along;
  MaskBits bits;

  constexpr int64_t warps() const { return int64_t{batches} * heads * query_groups * key_groups; }
};

}  // namespace flashcore::cuda::attention
