// The tiles of a block in shared memory: which are X and which are Y, and how they are loaded.
#pragma once

#include <cstdint>

#include "cuda/backward_sm80/general/products.cuh"
#include "cuda/backward_sm80/general/shape.cuh"
#include "cuda/backward_sm80/general/task.cuh"
#include "cuda/backward_sm80/general/tile_load.cuh"
#include "cuda/ptx/ldmatrix.cuh"

namespace flashcore::cuda::backward_sm80::general {

template <Config kConfig, class Element, Output kOutput>
struct Tiles {
  using S = Shape<kConfig>;
  static constexpr bool kOwnsQueries = owns_queries(kOutput);
  // dV needs no dS, and thus neither V nor a second product of scores.
  static constexpr bool kNeedsDs = kOutput != Output::dv;

  unsigned char* shared;

  __device__ __forceinline__ unsigned char* x1() const { return shared; }
  __device__ __forceinline__ unsigned char* x2() const { return shared + S::kX2Offset; }
  __device__ __forceinline__ unsigned char* y1(int stage) const {
    return shared + S::kYOffset + stage * kConfig.stage_bytes();
  }
  __device__ __forceinline__ unsigned char* y2(int stage) const { return y1(stage) + S::kY2Offset; }
  __device__ __forceinline__ float2* row_stats(int stage) const {
    return reinterpret_cast<float2*>(shared + S::kRowStatsOffset) + stage * kConfig.block_y;
  }

  template <class Tile>
  __device__ __forceinline__ void load(unsigned char* tile, const Source& source, int batch,
                                       int head, int first_row, int begin, int length,
                                       int thread) const {
    const attention::RowMatrix& m = source.matrix;
    const int64_t first = batch * m.batch + head * m.head + (int64_t{first_row} + begin) * m.row;
    load_tile<Element, Tile, kConfig.threads()>(tile, source, first, length - begin, thread);
  }

  // Loads queries from `begin` on.
  template <class Tile>
  __device__ __forceinline__ void load_queries(unsigned char* q, unsigned char* d_o,
                                               const Params& p, const attention::Entry& entry,
                                               int batch, int head, int begin, int thread) const {
    load<Tile>(q, p.q_tiles, batch, head, entry.q_row, begin, entry.len_q, thread);
    load<Tile>(d_o, p.d_o_tiles, batch, head, entry.q_row, begin, entry.len_q, thread);
  }
  template <class Tile>
  __device__ __forceinline__ void load_keys(unsigned char* k, unsigned char* v, const Params& p,
                                            const attention::Entry& entry, int batch, int head,
                                            int begin, int thread) const {
    load<Tile>(k, p.k_tiles, batch, head, entry.kv_row, begin, entry.len_kv, thread);
    if constexpr (kNeedsDs) {
      load<Tile>(v, p.v_tiles, batch, head, entry.kv_row, begin, entry.len_kv, thread);
    }
  }

  // `head`: of the owner's side, and of the other side.
  __device__ __forceinline__ void load_x(const Params& p, const attention::Entry& entry, int batch,
                                         int head, int begin, int thread) const {
    if constexpr (kOwnsQueries) {
      load_queries<typename S::XTile>(x1(), x2(), p, entry, batch, head, begin, thread);
    } else {
      load_keys<typename S::XTile>(x1(), x2(), p, entry, batch, head, begin, thread);
    }
  }
  __device__ __forceinline__ void load_y(const Params& p, const attention::Entry& entry, int batch,
                                         int head, int begin, int stage, int thread) const {
    if constexpr (kOwnsQueries) {
      load_keys<typename S::YTile>(y1(stage), y2(stage), p, entry, batch, head, begin, thread);
    } else {
      load_queries<typename S::YTile>(y1(stage), y2(stage), p, entry, batch, head, begin, thread);
      const float2* const rows = p.rows + row_number(p, entry, batch, head, begin);
      for (int i = thread; i < kConfig.block_y; i += kConfig.threads()) {
        row_stats(stage)[i] = begin + i < entry.len_q ? rows[i] : make_float2(0, 0);
      }
    }
  }

  // s = X1 Y1^T and t = X2 Y2^T.
  __device__ __forceinline__ void multiply(typename S::Scores& s, typename S::Scores& t, int stage,
                                           bool exactly, int warp, int lane) const {
    const int offset = 16 * warp * S::XTile::kPanelRowBytes;
    if constexpr (kIsFp32<Element>) {
      if (exactly) {
        multiply_xy_exactly<kConfig>(s, x1(), y1(stage), warp, lane);
        if constexpr (kNeedsDs) multiply_xy_exactly<kConfig>(t, x2(), y2(stage), warp, lane);
        return;
      }
    }
    multiply_xy<kConfig, Element>(s, ptx::shared_address(x1()) + offset,
                                  ptx::shared_address(y1(stage)), lane);
    if constexpr (kNeedsDs) {
      multiply_xy<kConfig, Element>(t, ptx::shared_address(x2()) + offset,
                                    ptx::shared_address(y2(stage)), lane);
    }
  }
};

}  // namespace flashcore::cuda::backward_sm80::general
