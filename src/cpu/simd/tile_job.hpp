// The interface between the driver (cpu/forward.cpp) and the code of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "problem/philox.hpp"
#include "problem/problem.hpp"

namespace flashcore::cpu {

inline constexpr int64_t kLargestBlockKv = 256;
// Floats between two rows of scores: a block plus a cache line, so that rows use different cache sets.
inline constexpr int64_t kScoreStride = kLargestBlockKv + 16;
inline constexpr int64_t kLargestRowTile = 32;  // rows of the largest micro-kernel
inline constexpr int64_t kDirectHeads = 8;      // most KV heads of a direct job
inline constexpr int64_t kDirectRows = 16;      // most rows per entry and KV head of a direct job

// Sizes of the blocks and of a thread's scratch memory, set when planning. All offsets are in
// bytes, multiples of 64.
struct TileLayout {
  int64_t rows = 0;      // most rows (queries of all heads of a job) at once
  int64_t block_kv = 0;  // keys per block
  int64_t units_qk = 0;  // padded depth of Q K^T: elements, or bf16 pairs
  int64_t width_v = 0;   // head_dim_v, padded to full vectors
  size_t q = 0;          // [row tiles][units_qk][rows of the tile]
  size_t k = 0;          // [panels][units_qk][kPanel]
  size_t v = 0;          // [panels][block_kv or pairs][kPanel]
  size_t o = 0;          // [rows][width_v], not yet divided by the denominator
  size_t s = 0;          // [kLargestRowTile][kScoreStride]
  size_t state = 0;      // [2][rows]: largest score (before RowScale's factors), denominator
  size_t staging = 0;    // rows that are about to be packed
  size_t bytes = 0;      // in total
};

// Keys of a block with a value that is not finite.
struct SpecialKeys {
  int32_t count = 0;
  int16_t index[kLargestBlockKv];
};

// Some queries of some heads that share a KV head, against a range of keys.
struct TileJob {
  const ForwardProblem* problem = nullptr;
  const Arguments* arguments = nullptr;
  const TileLayout* layout = nullptr;
  std::byte* scratch = nullptr;
  Sequence sequence;
  PhiloxKey dropout_key{};
  int64_t batch = 0;
  int64_t head_kv = 0;
  int64_t head_first = 0;  // query heads [head_first, head_first + heads)
  int64_t heads = 0;
  int64_t group = 1;        // query heads per KV head
  int64_t query_first = 0;  // queries [query_first, query_first + queries)
  int64_t queries = 0;
  bool direct = false;     // kDirectRows at most: K and V are read in place (simd/direct-inl.hpp)
  KeyRange keys{0, 0};     // no other key is looked at; begins at a multiple of block_kv
  int64_t first_seen = 0;  // in `keys`; those before it are not read
  // Null: write O and LSE. Otherwise [rows][2 + width_v] of largest score, denominator and sums, to
  // be merged with the results of other key ranges.
  float* partial = nullptr;

  int64_t rows() const { return heads * queries; }
  int64_t head_of(int64_t row) const { return head_first + row / queries; }
  int64_t query_of(int64_t row) const { return query_first + row % queries; }
};

// One instruction set's entry points.
struct SimdKernels {
  // Computes the sizes for a problem; `rows` and `block_kv` are given, everything else is filled in.
  TileLayout (*layout)(const ForwardProblem& problem, int64_t rows, int64_t block_kv);
  void (*attend)(const TileJob& job);
  // Merges `count` partial results of a job's rows, `stride` floats apart, into O and LSE.
  void (*merge)(const TileJob& job, const float* partials, int64_t count, int64_t stride);
};

const SimdKernels& simd_kernels_sse4();
const SimdKernels& simd_kernels_avx2();
const SimdKernels& simd_kernels_avx3();
const SimdKernels& simd_kernels_avx3_bf16();
const SimdKernels& simd_kernels_amx();
const SimdKernels& simd_kernels_native();

}  // namespace flashcore::cpu
