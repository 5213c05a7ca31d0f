// forward_small_sm80: one block computes 32 queries, its warps split the keys; instructions of
// sm_80 only, for problems that do not fill the machine.
//
//   warp w   | copy Q (all), own K, own V | wait K | S = Q K^T | max, P = 2^S | wait V | O += P V |
//            ... again for the next pass where there are more keys than the block holds ...
//   block    | partial O, max, sum to shared memory | barrier | each thread adds up its outputs |
//   store
//
// What a problem is (lengths, limits, the exact way out) is that of forward_small_sm90.
#pragma once

#include <cstdint>

#include "cuda/attention/quad_softmax.cuh"
#include "cuda/forward_small_sm80/config.hpp"
#include "cuda/forward_small_sm80/element.cuh"
#include "cuda/forward_small_sm90/exact.cuh"
#include "cuda/forward_small_sm90/task.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/exp2.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/log2.cuh"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda::forward_small_sm80 {

namespace small = forward_small_sm90;
using small::kNoKey, small::Params, small::Task;

inline constexpr float kLn2 = 0.6931471805599453F;

template <int kConfigIndex, class Element_>
struct Shape {
  static constexpr Config kConfig = kConfigs[kConfigIndex];
  using Element = Element_;
  static constexpr int kHeadDim = kConfig.head_dim, kWarpKeys = kConfig.warp_keys;
  static constexpr int kKeyProducts = kWarpKeys / 8, kOutProducts = kHeadDim / 8;
  // Steps of Q that stay in registers: all where there is room.
  static constexpr int kQSteps = kHeadDim == 64 ? kHeadDim / 16 : 1;
  using QTile = tile::SmemTile<kBlockQ, kHeadDim, 2>;
  using KvTile = tile::SmemTile<kWarpKeys, kHeadDim, 2>;

  // Maxima (of scaled scores, log2) and sums of the warps' rows.
  struct Rows {
    float max[kConfig.warps][kBlockQ], sum[kConfig.warps][kBlockQ];
  };
  static_assert(sizeof(Rows) == static_bytes(kConfig));
};

// A warp's share: lane l owns rows l / 4 and l / 4 + 8 of each 16-row group (tile/fragment.hpp).
template <class S>
struct Partial {
  float o[kRowGroups][S::kOutProducts][4];
  float max[kRowGroups][2], sum[kRowGroups][2];
};

// A whole tile, whose rows are kStride elements apart, or `stride` where that is 0: no test a
// piece, and no address where the distance is known.
template <class Tile, int kThreads, int kStride>
__device__ __forceinline__ void copy_whole(unsigned char* to, const uint16_t* from,
                                           int64_t stride) {
  constexpr int kPassRows = kThreads / 8;
  static_assert(kPassRows == 4 || kPassRows % 8 == 0);
#pragma unroll
  for (int pass = 0; pass < Tile::kRows / kPassRows; ++pass) {
    const int64_t row = int64_t{pass} * kPassRows;
    // The same chunk of a row further down: four rows are one bit of the swizzle, eight are none.
    unsigned char* const at =
        reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(to) ^ (row % 8 * 16)) +
        row * Tile::kPanelRowBytes;
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      ptx::cp_async_16(at + panel * Tile::kPanelBytes,
                       from + row * (kStride > 0 ? kStride : stride) + panel * Tile::kPanelColumns);
    }
  }
}

// Rows [0, rows) of a matrix from `source` on into a tile, zeros after them and past head_dim; by
// kThreads threads, eight a row and panel. `fills`: head_dim is the tile's.
template <class Tile, int kThreads>
__device__ __forceinline__ void copy_rows(unsigned char* tile, const uint16_t* source,
                                          int64_t stride, int rows, bool fills, int head_dim,
                                          const void* readable, int thread) {
  const int chunk = thread % 8, first_row = thread / 8;
  const uint16_t* from = source + (first_row * stride + 8 * chunk);
  if (rows >= Tile::kRows && fills) {
    unsigned char* const to = tile + Tile::chunk_offset(first_row, chunk);
    if (stride == Tile::kColumns) {
      copy_whole<Tile, kThreads, Tile::kColumns>(to, from, stride);
    } else {
      copy_whole<Tile, kThreads, 0>(to, from, stride);
    }
    return;
  }
  constexpr int kPassRows = kThreads / 8;
#pragma unroll 1
  for (int row = first_row; row < Tile::kRows; row += kPassRows, from += kPassRows * stride) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const int its_chunk = panel * Tile::kPanelChunks + chunk;
      const bool valid = row < rows && 8 * its_chunk < head_dim;
      ptx::cp_async_16(tile + Tile::chunk_offset(row, its_chunk),
                       valid ? from + panel * Tile::kPanelColumns : readable, valid);
    }
  }
}

template <class S>
struct Warp {
  unsigned char *q_tile, *k_tile, *v_tile;
  const Params& p;
  const Task& task;
  const int warp, lane;

  // Keys from `key` on of this warp: two groups of copies.
  __device__ __forceinline__ void load(int key) {
    const int rows = task.limits.len_kv - key;
    const uint16_t* k =
        small::row_pointer(p.k, task.batch, task.kv_head, int64_t{task.kv_row} + key);
    const uint16_t* v =
        small::row_pointer(p.v, task.batch, task.kv_head, int64_t{task.kv_row} + key);
    copy_rows<typename S::KvTile, 32>(k_tile, k, p.k.row, rows, p.fills, p.head_dim_qk, p.k.data,
                                      lane);
    ptx::cp_async_commit();
    copy_rows<typename S::KvTile, 32>(v_tile, v, p.v.row, rows, p.fills, p.head_dim_v, p.v.data,
                                      lane);
    ptx::cp_async_commit();
  }

  // Fragments of Q, of all steps or of one.
  using QFragments = uint32_t[S::kQSteps][kRowGroups][4];
  __device__ __forceinline__ void load_q(uint32_t (&a)[kRowGroups][4], int step) const {
    const uint32_t q = ptx::shared_address(q_tile) + S::QTile::chunk_offset(lane & 15, lane >> 4);
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
      ptx::ldmatrix_x4(a[g],
                       S::QTile::template advance<2>(q, step) + g * 16 * S::QTile::kPanelRowBytes);
    }
  }

  __device__ __forceinline__ void scores(float (&s)[kRowGroups][S::kKeyProducts][4],
                                         QFragments& q) const {
    const uint32_t k = ptx::shared_address(k_tile) +
                       S::KvTile::chunk_offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
#pragma unroll
    for (int i = 0; i < kRowGroups * S::kKeyProducts * 4; ++i) {
      s[i / (4 * S::kKeyProducts)][i / 4 % S::kKeyProducts][i % 4] = 0;
    }
#pragma unroll
    for (int step = 0; step < S::kHeadDim / 16; ++step) {
      if (S::kQSteps == 1) load_q(q[0], step);
      const auto& a = q[S::kQSteps == 1 ? 0 : step];
      const uint32_t column = S::KvTile::template advance<2>(k, step);
#pragma unroll
      for (int block = 0; block < S::kKeyProducts / 2; ++block) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, column + block * 16 * S::KvTile::kPanelRowBytes);
#pragma unroll
        for (int g = 0; g < kRowGroups; ++g) {
          S::Element::multiply(s[g][2 * block], a[g], b[0], b[1]);
          S::Element::multiply(s[g][2 * block + 1], a[g], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void mask(float (&s)[kRowGroups][S::kKeyProducts][4], int key) const {
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        const int row = task.first_query + 16 * g + 8 * slot + lane / 4;
        const small::Columns columns = small::columns_of(task.limits, row, key + 2 * (lane % 4));
#pragma unroll
        for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int column = 8 * n + e;
            if (column < columns.begin || column >= columns.end) s[g][n][2 * slot + e] = kNoKey;
          }
        }
      }
    }
  }

  // s = 2^(s * scale - max); the sums follow, and O where there is one.
  template <bool kFirst>
  __device__ __forceinline__ void softmax(float (&s)[kRowGroups][S::kKeyProducts][4],
                                          Partial<S>& w) const {
#pragma unroll
    for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
      for (int slot = 0; slot < 2; ++slot) {
        float even = s[g][0][2 * slot], odd = s[g][0][2 * slot + 1];
#pragma unroll
        for (int n = 1; n < S::kKeyProducts; ++n) {
          even = fmaxf(even, s[g][n][2 * slot]);
          odd = fmaxf(odd, s[g][n][2 * slot + 1]);
        }
        float raised = attention::quad_max(fmaxf(even, odd)) * p.scale_log2;
        if (!kFirst) raised = fmaxf(raised, w.max[g][slot]);
        const float reference = attention::finite_reference(raised);
        float sums[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < S::kKeyProducts; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s[g][n][2 * slot + e];
            x = ptx::exp2_approx(fmaf(x, p.scale_log2, -reference));
            sums[e] += x;
          }
        }
        if (kFirst) {
          w.sum[g][slot] = sums[0] + sums[1];
        } else {
          const float rescale = ptx::exp2_approx(w.max[g][slot] - reference);
          w.sum[g][slot] = fmaf(w.sum[g][slot], rescale, sums[0] + sums[1]);
#pragma unroll
          for (int n = 0; n < S::kOutProducts; ++n) {
            w.o[g][n][2 * slot] *= rescale;
            w.o[g][n][2 * slot + 1] *= rescale;
          }
        }
        w.max[g][slot] = raised;
      }
    }
  }

  __device__ __forceinline__ void outputs(const float (&s)[kRowGroups][S::kKeyProducts][4],
                                          Partial<S>& w) const {
    const uint32_t v = ptx::shared_address(v_tile) + S::KvTile::chunk_offset(lane & 15, lane >> 4);
#pragma unroll
    for (int block = 0; block < S::kWarpKeys / 16; ++block) {
      uint32_t a[kRowGroups][4];
#pragma unroll
      for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto& pair = s[g][2 * block + i / 2];
          a[g][i] = S::Element::pack(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int step = 0; step < S::kHeadDim / 16; ++step) {
        uint32_t b[4];
        ptx::ldmatrix_x4_trans(
            b, S::KvTile::template advance<2>(v, step) + block * 16 * S::KvTile::kPanelRowBytes);
#pragma unroll
        for (int g = 0; g < kRowGroups; ++g) {
          S::Element::multiply(w.o[g][2 * step], a[g], b[0], b[1]);
          S::Element::multiply(w.o[g][2 * step + 1], a[g], b[2], b[3]);
        }
      }
    }
  }

  // Keys from `key` on, whose copies are on their way.
  template <bool kFirst>
  __device__ __forceinline__ void pass(Partial<S>& w, int key) {
    float s[kRowGroups][S::kKeyProducts][4];
    QFragments q;
    if (S::kQSteps > 1) {
#pragma unroll
      for (int step = 0; step < S::kQSteps; ++step) load_q(q[step], step);
    }
    ptx::cp_async_wait<1>();
    __syncwarp();
    scores(s, q);
    if (task.tiles.needs_mask(key / small::kBlockKv)) mask(s, key);
    softmax<kFirst>(s, w);
    if (kFirst) {
#pragma unroll
      for (int i = 0; i < kRowGroups * S::kOutProducts * 4; ++i) {
        w.o[i / (4 * S::kOutProducts)][i / 4 % S::kOutProducts][i % 4] = 0;
      }
    }
    ptx::cp_async_wait<0>();
    __syncwarp();
    outputs(s, w);
    __syncwarp();  // keys and values have been read
  }

  // All keys of this warp, at least one. The first copies are on their way.
  __device__ __forceinline__ void attend(Partial<S>& w, int first_key, int end_key) {
    constexpr int kPassKeys = S::kConfig.pass_keys();
    pass<true>(w, first_key);
#pragma unroll 1
    for (int key = first_key + kPassKeys; key < end_key; key += kPassKeys) {
      load(key);
      pass<false>(w, key);
    }
  }
};

// Offset of four neighbouring fp32 outputs in a warp's partial result, free of bank conflicts.
template <class S>
__device__ __forceinline__ int partial_offset(int row, int column) {
  return 4 * (row * S::kHeadDim + ((column / 4) ^ (row & 7)) * 4 + column % 4);
}

template <class S>
__device__ __forceinline__ void leave_partial(unsigned char* memory, typename S::Rows& rows,
                                              const Partial<S>& w, int warp, int lane) {
#pragma unroll
  for (int g = 0; g < kRowGroups; ++g) {
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      const int row = 16 * g + 8 * slot + lane / 4;
      const float sum = attention::quad_sum(w.sum[g][slot]);
      if (lane % 4 == 0) {
        rows.max[warp][row] = w.max[g][slot];
        rows.sum[warp][row] = sum;
      }
#pragma unroll
      for (int n = 0; n < S::kOutProducts; ++n) {
        *reinterpret_cast<float2*>(memory + partial_offset<S>(row, 8 * n + 2 * (lane % 4))) =
            make_float2(w.o[g][n][2 * slot], w.o[g][n][2 * slot + 1]);
      }
    }
  }
}

// Each row is finished by neighbouring lanes of one warp, with neighbouring columns each. Where a
// thread stores is found before the keys have come: there is time for it, and what it takes to find
// it is not yet in the constant cache.
template <class S>
struct Place {
  static constexpr int kOutputs = S::kConfig.thread_outputs();
  static constexpr int kRowLanes = S::kHeadDim / kOutputs;
  static_assert(32 % kRowLanes == 0);

  uint16_t* o;
  float* lse;       // null: the thread has none to store
  int columns;      // from the first of its own on; not more than 0 where nothing is stored
  int row, column;  // in the tile

  __device__ __forceinline__ Place(const Params& p, const Task& task, int thread)
      : row(thread / kRowLanes), column(thread % kRowLanes * kOutputs) {
    const int query = task.first_query + row;
    const int64_t at = task.q_row + query;
    const bool exists = query < task.rows_q;
    columns = exists ? p.head_dim_v - column : 0;
    o = static_cast<uint16_t*>(p.o) + task.batch * p.o_batch + task.head * p.o_head + at * p.o_row +
        column;
    lse = nullptr;
    if (p.lse != nullptr && column == 0 && exists) {
      lse = p.lse + task.batch * p.lse_batch + task.head * p.lse_head + at * p.lse_row;
    }
    asm volatile("" : "+l"(o), "+l"(lse), "+r"(columns));  // here, and not later
  }
};

// Adds up what the first `active` warps have left.
template <class S>
__device__ __forceinline__ void merge(const Params& p, const Task& task, const Place<S>& place,
                                      const unsigned char* partials, const typename S::Rows& rows,
                                      int active, int thread) {
  constexpr int kWarps = S::kConfig.warps, kOutputs = Place<S>::kOutputs;
  constexpr int kPartialBytes = 2 * S::kConfig.kv_bytes();
  const int row = place.row;
  float largest = kNoKey;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i < active) largest = fmaxf(largest, rows.max[i][row]);
  }
  const float reference = attention::finite_reference(largest);
  float sum = 0, o[kOutputs] = {};
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i >= active) break;
    const float weight = ptx::exp2_approx(rows.max[i][row] - reference);
    sum = fmaf(rows.sum[i][row], weight, sum);
#pragma unroll
    for (int c = 0; c < kOutputs; c += 4) {
      const float4 four = *reinterpret_cast<const float4*>(
          partials + i * kPartialBytes + partial_offset<S>(row, place.column + c));
      o[c] = fmaf(four.x, weight, o[c]);
      o[c + 1] = fmaf(four.y, weight, o[c + 1]);
      o[c + 2] = fmaf(four.z, weight, o[c + 2]);
      o[c + 3] = fmaf(four.w, weight, o[c + 3]);
    }
  }
  const float inverse = sum == 0 ? 0.0F : ptx::reciprocal_approx(sum);
  const bool in_use = task.first_query + row < task.len_q;
  float total = 0;  // not finite as soon as one output is not
#pragma unroll
  for (int c = 0; c < kOutputs; ++c) o[c] *= inverse;
#pragma unroll
  for (int c = 0; c < kOutputs; c += 4) total += (o[c] + o[c + 1]) + (o[c + 2] + o[c + 3]);
#pragma unroll
  for (int c = 0; c < kOutputs; c += 8) {
    uint4 eight =
        make_uint4(S::Element::pack(o[c], o[c + 1]), S::Element::pack(o[c + 2], o[c + 3]),
                   S::Element::pack(o[c + 4], o[c + 5]), S::Element::pack(o[c + 6], o[c + 7]));
    if (!in_use) eight = make_uint4(0, 0, 0, 0);
    if (place.columns > c) *reinterpret_cast<uint4*>(place.o + c) = eight;
  }
  if (place.lse != nullptr) {
    *place.lse = in_use && sum != 0 ? (reference + ptx::log2_approx(sum)) * kLn2 : kNoKey;
  }
  const uint32_t lanes = __ballot_sync(0xffffffffU, in_use && !isfinite(total));
  if (lanes != 0) [[unlikely]] {
    __syncwarp();  // what was stored is stored again
    constexpr int kRowLanes = Place<S>::kRowLanes;
    small::store_exactly<typename S::Element, true, kRowLanes>(
        p, lanes, task.first_query + thread / 32 * (32 / kRowLanes), 0, S::kHeadDim / 32);
  }
}

// By index: nvcc 13.0 cannot name a __global__ template's argument of class type.
template <int kConfigIndex, class Element>
__global__ void __launch_bounds__(kConfigs[kConfigIndex].threads(), 1)
    forward_small_sm80_kernel(const __grid_constant__ Params p) {
  using S = Shape<kConfigIndex, Element>;
  constexpr Config kConfig = S::kConfig;
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ typename S::Rows rows;
  const unsigned its_thread = threadIdx.x;
  const auto thread = static_cast<int>(its_thread);
  const auto warp = static_cast<int>(its_thread / 32), lane = static_cast<int>(its_thread % 32);
  // Tiles of late queries come first: under a causal mask they see the most keys.
  const int tile = static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x);
  const Task task = small::find_task_at<true>(p, tile * kBlockQ, kBlockQ);
  if (!task.exists()) return;

  unsigned char* const own = memory + kConfig.q_bytes() + warp * 2 * kConfig.kv_bytes();
  Warp<S> share{memory, own, own + kConfig.kv_bytes(), p, task, warp, lane};
  const int begin_key = task.tiles.begin * small::kBlockKv;
  const int end_key = min(task.tiles.end * small::kBlockKv, task.limits.len_kv);
  const int first_key = begin_key + warp * S::kWarpKeys;
  if (begin_key < end_key) {
    const uint16_t* q =
        small::row_pointer(p.q, task.batch, task.head, int64_t{task.q_row} + task.first_query);
    copy_rows<typename S::QTile, kConfig.threads()>(memory, q, p.q.row,
                                                    task.len_q - task.first_query, p.fills,
                                                    p.head_dim_qk, p.q.data, thread);
  }
  ptx::cp_async_commit();
  if (first_key < end_key) share.load(first_key);

  const Place<S> place(p, task, thread);
  if (first_key < end_key) {
    ptx::cp_async_wait<2>();  // this thread's part of Q
  } else {
    ptx::cp_async_wait<0>();
  }
  __syncthreads();
  if (first_key < end_key) {
    Partial<S> w;
    share.attend(w, first_key, end_key);
    leave_partial<S>(own, rows, w, warp, lane);
  }
  __syncthreads();
  const int active = (end_key - begin_key + S::kWarpKeys - 1) / S::kWarpKeys;
  merge<S>(p, task, place, memory + kConfig.q_bytes(), rows, active, thread);
}

}  // namespace flashcore::cuda::forward_small_sm80
