// Everything that one launch of forward_sm80 is told. Strides are in elements.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "problem/philox.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::forward_sm80 {

// [batch, head, row, column] with contiguous columns; a packed tensor has batch stride 0.
struct Matrix {
  const void* data;
  int64_t batch, head, row;
  int64_t pass_bytes;  // of the rows that a block copies at once
};

// [batch, head, query, key], broadcast where a stride is 0; absent when data is null.
struct PairMatrix {
  const void* data;
  int64_t batch, head, query, key;
  bool in_pairs;  // keys are neighbours, and every even key is aligned to two elements
};

// One element a batch entry and head; absent when data is null.
struct HeadVector {
  const float* data;
  int64_t batch, head;
};

// One int32 a batch entry; absent when data is null. Device memory: never trusted, always clamped.
struct EntryVector {
  const int32_t* data;
  int64_t step;
};

enum class ElementType : int32_t { f32, f16, bf16 };
enum class Diagonal : int32_t { top_left, bottom_right, given };

struct Params {
  Matrix q, k, v;
  void* o;
  int64_t o_batch, o_head, o_row;
  float* lse;  // null when not wanted
  int64_t lse_batch, lse_head, lse_row;

  int batch, heads_q, heads_kv;
  int seqlen_q, seqlen_kv;  // bounds of every entry's lengths
  int total_q, total_kv;    // rows of packed tensors
  int head_dim_qk, head_dim_v;
  EntryVector cu_seqlens_q, cu_seqlens_kv, seqlens_q, seqlens_kv, causal_offsets;

  Band band;
  Diagonal diagonal;
  int64_t causal_offset;
  float softmax_scale;
  HeadVector sinks;

  // The order of query tiles: see scheduler.hpp. 32 bits: refused beyond.
  int q_tiles;
  int section_heads;
  bool longest_first;
  int packed_slots;  // a head, see packed_tiles.hpp; 0: every entry has q_tiles tiles

  // Rows of 16-byte chunks with nothing to pad: K and V tiles inside a sequence need no test.
  bool whole_chunks;
  ElementType o_type;
  bool o_vectors;  // O has the type of Q and rows of aligned 16-byte chunks

  // Only read by the instances with features.
  float cap_near;        // softcap of a product up to this is ...
  float cap_terms[4];    // ... itself times a polynomial in its square
  int splits;            // of the keys, each by blocks of its own; 1: O and LSE are written at once
  int split_tiles;       // tiles of keys a split
  float* partial_o;      // [batch, head, query, split, head_dim_v], not yet divided by the sums
  float2* partial_rows;  // [batch, head, query, split]: reference, sum
  bool chunks_qk,
      chunks_v;        // rows are 16-byte aligned and whole chunks; otherwise element by element
  float score_factor;  // of a product, before softcap; without, to units of log2
  float cap_log2;      // softcap in units of log2; 0: off
  PairMatrix bias, mask;
  ElementType bias_type;
  HeadVector alibi_slopes;
  bool dropout;
  uint32_t dropout_threshold;  // a pair is kept when its word is at least this
  float dropout_rescale;
  PhiloxKey dropout_key;
};

}  // namespace flashcore::cuda::forward_sm80
