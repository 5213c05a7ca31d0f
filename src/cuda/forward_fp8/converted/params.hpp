// What the two launches around a 16-bit kernel are told. Strides are in elements.
//
//   convert_inputs    fp8 Q, K and V, times their scales, as bf16 in the workspace
//   (a 16-bit kernel)
//   convert_outputs   O of bf16 as another type, and its largest values
#pragma once

#include <cstdint>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/forward_params.hpp"

namespace flashcore::cuda::forward_fp8::converted {

inline constexpr int kThreads = 256;
inline constexpr int kChunk = 8;  // elements that a thread handles at once
inline constexpr int kDepth = 4;  // rows that it loads before it stores one
// Keys of the largest tile of a 16-bit kernel: so far past those in use rows become 0, since a NaN that
// was left in memory would be computed around.
inline constexpr int kTileRows = 256;

// The rows of all entries and heads, in the order in which they lie in the workspace: heads innermost
// where they lie beside each other in the caller's tensor, too.
struct Rows {
  uint32_t count = 0, inner = 1, outer = 1;
  attention::Divisor by_inner{}, by_outer{};
  bool heads_inner = false;
  int lanes = 1;  // threads beside each other in a row, 1 to 32

  constexpr int a_block() const { return kThreads / lanes * kDepth; }
  constexpr unsigned int blocks() const {
    const auto each = static_cast<uint32_t>(a_block());
    return count / each + (count % each != 0 ? 1 : 0);
  }
};

// One scale for each batch entry, head and block of rows; null: 1.
struct Scales {
  const float* data = nullptr;
  int64_t batch = 0, head = 0, block = 0;
  attention::Divisor by_block{};
  int blocks = 1;
  bool by_entry = false;  // differs between entries, which packed rows have to be asked for
};

// What f16 has too few exponents for. K and V times the fraction of their scale alone, 1 to 2, and `lift`; Q, and
// the O that comes of V, times the power of two that was left out, and the opposite of `lift`. Only where a head
// has one scale; otherwise elements are as they are told.
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
  int columns = 0, pitch = 0;  // pitch: of `to`, whole chunks
  bool e5m2 = false;
  bool whole_chunks = false;  // rows are aligned chunks
  bool is_q = false;
};

// The largest values are 0 before the first is found.
struct Largest {
  uint32_t* data = nullptr;  // fp32 numbers of at least 0, whose bits rise with them; null: none
  int64_t batch = 0, head = 0;
  int batches = 0, heads = 0;  // of the tensor
};

struct InputParams : attention::ForwardParams {
  Input inputs[3];
  attention::Divisor by_group;   // query heads of a KV head
  unsigned int first_blocks[3];  // of K, of V, and all
  Largest largest;
};

enum class OutputType { f32, f16, bf16, e4m3, e5m2 };

struct OutputParams : attention::ForwardParams {
  const uint16_t* from;  // f16 or bf16
  Rows rows;
  int pitch;
  bool f16;
  Powers powers;
  float lift;
  Scales v_scales;  // whose powers are brought in
  attention::Divisor by_group;
  OutputType type;
  bool whole_chunks;
  Scales scales;
  Largest largest;
  bool by_entry;  // scales or largest values differ between entries
};

}  // namespace flashcore::cuda::forward_fp8::converted
