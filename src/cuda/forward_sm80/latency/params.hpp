// Everything that one launch of forward_sm80_latency is told.
#pragma once

#include <cstdint>

#include "cuda/attention/latency/params.hpp"

namespace flashcore::cuda::forward_sm80::latency {

inline constexpr int kPieceElements = 8;  // a piece is 16 bytes, what one copy takes

// A tensor whose rows all begin at a multiple of a piece, with distances in pieces: a place in it
// is a sum of 32-bit products.
struct Pieces {
  const void* data;
  uint32_t row, head, batch;

  constexpr uint32_t at(uint32_t its_batch, uint32_t its_head, uint32_t its_row) const {
    return its_batch * batch + its_head * head + its_row * row;
  }
};

// What the first copies need where all tiles are whole: it comes first, as a launch finds the
// constant cache cold.
struct WholeParams {
  Pieces q, k, v;
};

struct Params {
  WholeParams whole;
  attention::latency::Params problem;
};

}  // namespace flashcore::cuda::forward_sm80::latency
