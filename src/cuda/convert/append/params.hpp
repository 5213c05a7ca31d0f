// Everything that append's launch is told. Strides are in elements.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/params.hpp"
#include "cuda/attention/element_type.hpp"

namespace flashcore::cuda::convert::append {

using attention::ElementType;

struct Rotation {
  const float *cos, *sin;  // of tables; null: there are none
  int64_t cos_position, cos_pair, sin_position, sin_pair;
  int64_t positions;  // that tables have
  // Pair n at position m turns by m * turns * 2^(n * log2_step) whole turns.
  double turns, log2_step;
  int pairs;  // of a row; 0: no rotation
  bool interleaved;
};

// What a thread does at a time; in all but `elements` every row, and its pairs, are aligned chunks of 8
// elements. The last three have new rows of 16 bits.
enum class Work {
  elements,
  chunks,
  turns,     // with a rotation
  converts,  // without, to a cache of another type, and there are no queries
  moves      // the same to a cache of the same type
};

// The cache, as attention with the new rows as queries would be told of it: Q is k_new.
struct Params : attention::decode::Params {
  attention::RowMatrix v_new, queries;  // queries: none where data is null
  attention::RowMatrix rotated;         // the place of the rotated queries
  void *k_cache, *v_cache, *q_out;
  int query_heads;
  ElementType type, k_type, v_type;  // of the new rows; of K and V in the cache
  Rotation rotation;
  int64_t rows;         // new ones, of all sequences
  int threads_per_row;  // kThreads, or 32
  Work work;
};

inline constexpr int kThreads = 256;
// What a block keeps of a row: a cosine and a sine for each pair.
inline constexpr int kMostPairs = 4096, kMostPairsPerWarp = kMostPairs / (kThreads / 32);

}  // namespace flashcore::cuda::convert::append
