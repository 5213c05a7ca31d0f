// The interface between the backward driver (cpu/backward.cpp) and the code of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/simd/tile_job.hpp"
#include "problem/backward.hpp"

namespace flashcore::cpu {

inline constexpr int64_t kBlockQ = 64;  // queries per block

// Sizes of the blocks and of a thread's scratch memory, set when planning. All offsets are in
// bytes, multiples of 64.
struct BackwardLayout {
  int64_t block_kv = 0;  // keys per block
  int64_t units_qk = 0;  // padded depth of Q K^T: elements, or bf16 pairs
  int64_t units_v = 0;   // padded depth of dO V^T
  int64_t width_qk = 0;  // head dimensions, padded to full vectors
  int64_t width_v = 0;
  size_t q_tiles = 0, d_o_tiles = 0;   // [row tiles][units][rows of the tile]
  size_t q_rows = 0, d_o_rows = 0;     // [panels][queries or pairs][kPanel]
  size_t k_panels = 0, v_panels = 0;   // [panels][units][kPanel keys]
  size_t k_rows = 0;                   // [panels][keys or pairs][kPanel]
  size_t dk = 0, dv = 0;               // [block_kv][width]
  size_t s = 0, dp = 0;                // [kLargestRowTile][kScoreStride]
  size_t p = 0, ds = 0;                // [kBlockQ][kScoreStride]
  size_t p_turned = 0, ds_turned = 0;  // [block_kv][kScoreStride]
  size_t staging = 0;                  // rows that are about to be packed
  size_t d_bias = 0;                   // double [kBlockQ][block_kv]; only if requested
  size_t bytes = 0;                    // in total
};

// One batch entry and KV head. `tile` has the members that the forward pass' scores read.
struct BackwardJob {
  TileJob tile;
  const BackwardProblem* problem = nullptr;
  const BackwardArguments* arguments = nullptr;
  const BackwardLayout* layout = nullptr;
  int64_t keys_in_all = 0;  // rows of K that belong to the entry, at least len_kv
  KeyRange keys{0, 0};      // the range of these that the job computes
  // Both of query 0 of the entry and query head 0; `head_stride` elements to the next head.
  float* delta = nullptr;  // dO . O - dLSE
  float* lse = nullptr;    // infinity for a row that sees no key
  int64_t head_stride = 0;
  float* dq = nullptr;         // [queries][width_qk] of head 0, before the scale
  double* d_slopes = nullptr;  // head 0's; null: not requested
};

// The elements of dBias that one job owns, and the entries and heads to sum over.
struct BiasTile {
  int64_t query_first = 0, query_last = 0;  // all queries if the bias has one query
  int64_t key_first = 0, key_last = 0;
};

// One instruction set's entry points.
struct BackwardKernels {
  // Computes the sizes for a problem and blocks of `block_kv` keys.
  BackwardLayout (*layout)(const BackwardProblem& problem, int64_t block_kv);
  // Computes delta and lse of every query in use of a head; returns the gradient of its sink.
  double (*prepare)(const BackwardJob& job, int64_t head);
  // Computes dK and dV of the job's keys, and adds to its part of dQ, which must be zero before.
  void (*attend)(const BackwardJob& job);
  // Computes dQ of a head's rows: the sum of `count` parts, `stride` floats apart.
  void (*finish)(const BackwardJob& job, int64_t head, int64_t count, int64_t stride);
  // Adds the contribution of one batch entry and query head to dBias elements in scratch memory.
  void (*add_to_bias)(const BackwardJob& job, int64_t head, const BiasTile& tile);
};

const BackwardKernels& backward_kernels_sse4();
const BackwardKernels& backward_kernels_avx2();
const BackwardKernels& backward_kernels_avx3();
const BackwardKernels& backward_kernels_avx3_bf16();
const BackwardKernels& backward_kernels_amx();
const BackwardKernels& backward_kernels_native();

}  // namespace flashcore::cpu
