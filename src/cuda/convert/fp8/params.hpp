// What the two launches around a 16-bit kernel are told. Strides are in elements.
//
//   convert_inputs    fp8 Q, K and V, times their scales, as bf16 in the workspace
//   (a 16-bit kernel)
//   convert_outputs   O of bf16 as another type, and its largest values
#pragma once

#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/element_type.hpp"
#include "cuda/attention/forward_params.hpp"

namespace flashcore::cuda::convert::fp8 {

inline constexpr int kThreads = 256;
inline constexpr int kChunk = 8;  // elements that a thread handles at once
inline constexpr int kDepth = 4;  // rows that a thread loads before it stores one
// Keys of the largest tile of a 16-bit kernel. Rows up to a tile past those in use
// are set to 0, since a NaN left in memory would make the kernel recompute rows.
inline constexpr int kTileRows = 256;

// The rows of all sequences and heads, in the workspace's order:
// heads innermost if they are adjacent in the caller's tensor as well.
struct Rows {
  uint32_t count = 0, inner = 1, outer = 1;
  attention::Divisor by_inner{}, by_outer{};
  bool heads_inner = false;
  int lanes = 1;  // adjacent threads per row, 1 to 32

  constexpr int rows_per_block() const { return kThreads / lanes * kDepth; }
  constexpr unsigned int blocks() const {
    const auto each = static_cast<uint32_t>(rows_per_block());
    return count / each + (count % each != 0 ? 1 : 0);
  }
};

// One scale per sequence, head and block of rows; null: 1.
struct Scales {
  const float* data = nullptr;
  int64_t batch = 0, head = 0, block = 0;
  attention::Divisor by_block{};
  int blocks = 1;
  bool by_entry = false;  // differs between sequences, which packed rows must look up
};

// Scale exponents that f16 cannot hold. K and V are multiplied only by the fraction of their scale, 1 to
// 2, and by `lift`. Q, and the O of V, are multiplied by the power of two that was left out, and divided
// by `lift`. Only if a head has one scale; otherwise elements are multiplied by their full scale.
enum class Powers { kept, left_out, brought_in };

// Q, K or V.
struct Input {
  attention::RowMatrix from{};
  uint16_t* to = nullptr;  // f16 or bf16
  bool f16 = false;
  Powers powers = Powers::kept;
  float lift = 1;
  Rows rows;
  Scales scales;
  int columns = 0, pitch = 0;  // pitch: of `to`, in whole chunks
  bool e5m2 = false;
  bool whole_chunks = false;  // rows are aligned chunks
  bool is_q = false;
};

// The largest values are set to 0 before the first one is found.
struct Largest {
  uint32_t* data = nullptr;  // nonnegative fp32 numbers, whose bits compare like them; null: none
  int64_t batch = 0, head = 0;
  int batches = 0, heads = 0;  // of the tensor
};

struct InputParams : attention::ForwardParams {
  Input inputs[3];
  attention::Divisor by_group;   // query heads per KV head
  unsigned int first_blocks[3];  // of K, of V, and the total
  Largest largest;
};

struct OutputParams : attention::ForwardParams {
  const uint16_t* from;  // f16 or bf16
  Rows rows;
  int pitch;
  bool f16;
  Powers powers;
  float lift;
  Scales v_scales;  // their powers are applied here
  attention::Divisor by_group;
  attention::ElementType type;
  bool whole_chunks;
  Scales scales;
  Largest largest;
  bool by_entry;  // scales or largest values differ between sequences
};

}  // namespace flashcore::cuda::convert::fp8
