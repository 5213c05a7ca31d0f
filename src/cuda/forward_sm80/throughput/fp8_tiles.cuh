// Converts Q, K and V from fp8 to the fp16 tiles that all other code reads. fp16 holds
// every number of e4m3 and of e5m2, whose bits are its upper half: nothing is rounded.
//
//   shared memory   | Q | K, V as fp16 | bytes of the next K, V |      in place of two stages
//
//   tile n    : | wait, barrier | bytes to fp16 | barrier | S = Q K^T ... O += P V |
//   tile n + 1:                                 | bytes of K, V ------------------->
//
// A block converts each byte once, for all of its warps. Q passes through registers, once per block.
#pragma once

#include <cstdint>

#include "cuda/attention/decode/element.cuh"
#include "cuda/forward_sm80/throughput/element.cuh"
#include "cuda/forward_sm80/throughput/shape.cuh"
#include "cuda/forward_sm80/throughput/task.cuh"
#include "cuda/forward_sm80/throughput/tile_copy.cuh"

namespace flashcore::cuda::forward_sm80::throughput {

// The geometry of the bytes, for KvLoader: one stage, in the place of the other kernels' second one.
template <Config kConfig>
struct ByteShape {
  using S = Shape<kConfig>;
  static constexpr int kBlockKv = S::kBlockKv;
  static constexpr int kBytes = 1;
  static constexpr int kChunkElements = tile::kChunkBytes;
  static constexpr int padded(int columns) { return (columns + kPanelBytes - 1) & -kPanelBytes; }

  using KTile = tile::SmemTile<kBlockKv, padded(kConfig.head_dim_qk), 1>;
  using VTile = tile::SmemTile<kBlockKv, padded(kConfig.head_dim_v), 1>;
  template <KeyOrder kOrder>
  using KCopy = TileCopy<KTile, kConfig.head_dim_qk, S::kThreads, kOrder>;
  template <KeyOrder kOrder>
  using VCopy = TileCopy<VTile, kConfig.head_dim_v, S::kThreads, kOrder>;

  static constexpr int kStageBytes = 0;  // all stages are the same memory
  static constexpr int k_offset(int /*stage*/) { return S::k_offset(1); }
  static constexpr int v_offset(int stage) { return k_offset(stage) + KTile::kBytes; }
  static_assert(KTile::kBytes + VTile::kBytes <= S::kStageBytes);
};

// The geometry of a tile as stored in memory.
template <class Element, Config kConfig>
struct StoredShape {
  using Type = Shape<kConfig>;
};
template <Config kConfig>
struct StoredShape<Fp8, kConfig> {
  using Type = ByteShape<kConfig>;
};

// Converts eight bytes to a chunk of fp16.
__device__ __forceinline__ uint4 to_fp16(uint32_t low, uint32_t high, bool e5m2) {
  using attention::decode::of_fp8x2;
  using To = attention::decode::Fp16;
  return make_uint4(of_fp8x2<To>(low & 0xffffU, e5m2), of_fp8x2<To>(low >> 16, e5m2),
                    of_fp8x2<To>(high & 0xffffU, e5m2), of_fp8x2<To>(high >> 16, e5m2));
}

// Writes chunk `chunk` of 16 bytes of a row as two chunks of fp16. Eight lanes that hold
// a row would write to the same banks, so half of them begin with the second chunk.
template <class Tile>
__device__ __forceinline__ void put_fp16(unsigned char* tile, int row, int chunk,
                                         const uint4& bytes, bool e5m2) {
  const int second = chunk >> 2 & 1;
  const uint4 low = to_fp16(bytes.x, bytes.y, e5m2), high = to_fp16(bytes.z, bytes.w, e5m2);
  *reinterpret_cast<uint4*>(tile + Tile::chunk_offset(row, 2 * chunk + second)) =
      second != 0 ? high : low;
  *reinterpret_cast<uint4*>(tile + Tile::chunk_offset(row, 2 * chunk + 1 - second)) =
      second != 0 ? low : high;
}

template <class From, class To, int kHeadDim, int kThreads>
__device__ __forceinline__ void convert_tile(const unsigned char* from, unsigned char* to,
                                             bool e5m2, int thread) {
  constexpr int kChunks = kHeadDim / tile::kChunkBytes, kAll = From::kRows * kChunks;
  static_assert(kAll % kThreads == 0);
#pragma unroll 2
  for (int i = thread; i < kAll; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    put_fp16<To>(to, row, chunk,
                 *reinterpret_cast<const uint4*>(from + From::chunk_offset(row, chunk)), e5m2);
  }
}

// Converts the bytes of a tile, which have landed. Barriers must pass before and after.
template <Config kConfig>
__device__ __forceinline__ void convert_keys(const Fp8Params& p, unsigned char* shared,
                                             int thread) {
  using S = Shape<kConfig>;
  using B = ByteShape<kConfig>;
  convert_tile<typename B::KTile, typename S::KTile, kConfig.head_dim_qk, S::kThreads>(
      shared + B::k_offset(0), shared + S::k_offset(0), p.kv_e5m2, thread);
  convert_tile<typename B::VTile, typename S::VTile, kConfig.head_dim_v, S::kThreads>(
      shared + B::v_offset(0), shared + S::v_offset(0), p.kv_e5m2, thread);
}

// Loads 16 bytes of a row of `columns` columns from `column` on, zeros past its end.
__device__ __forceinline__ uint4 load_bytes(const unsigned char* row, int column, int columns,
                                            bool chunks) {
  if (chunks) {
    return column < columns ? __ldg(reinterpret_cast<const uint4*>(row + column))
                            : make_uint4(0, 0, 0, 0);
  }
  uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
  for (int e = 0; e < 16; ++e) {
    if (column + e < columns)
      word[e / 4] |= static_cast<uint32_t>(__ldg(row + column + e)) << (e % 4 * 8);
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

// Converts Q's tile to fp16, with zeros past the queries in use. A barrier must pass afterwards.
template <Config kConfig>
__device__ __forceinline__ void convert_queries(const Fp8Params& p, const Task& task,
                                                unsigned char* shared) {
  using S = Shape<kConfig>;
  constexpr int kChunks = kConfig.head_dim_qk / tile::kChunkBytes;
  const int rows = static_cast<int>(task.sequence.len_q) - task.first_query;
  const unsigned char* const first =
      row_pointer<1>(p.q, task.batch, task.head, task.sequence.q_begin + task.first_query);
#pragma unroll 1
  for (auto i = static_cast<int>(threadIdx.x); i < S::kBlockQ * kChunks; i += S::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    uint4 bytes = make_uint4(0, 0, 0, 0);
    if (row < rows) {
      bytes =
          load_bytes(first + row * p.q.row, chunk * tile::kChunkBytes, p.head_dim_qk, p.chunks_qk);
    }
    put_fp16<typename S::QTile>(shared, row, chunk, bytes, p.q_e5m2);
  }
}

}  // namespace flashcore::cuda::forward_sm80::throughput
