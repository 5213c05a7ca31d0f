// The matrices that 00_unfused keeps in memory: S in fp32 and P in fp16, padded to whole tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/ladder/rung.hpp"

namespace flashcore::cuda::ladder {

inline constexpr int kUnfusedBlock = 64;  // rows and columns of a tile

struct UnfusedSizes {
  int64_t rows, keys;  // per head
  int64_t elements;    // of all heads
};

constexpr UnfusedSizes unfused_sizes(const RungParams& params) {
  const auto padded = [](int extent) {  // in 32 bits: the kernels' registers are short
    return int64_t{(static_cast<uint32_t>(extent) + kUnfusedBlock - 1) / kUnfusedBlock} *
           kUnfusedBlock;
  };
  const int64_t rows = padded(params.seqlen_q), keys = padded(params.seqlen_kv);
  return {rows, keys, int64_t{params.batch} * params.heads * rows * keys};
}

inline size_t unfused_workspace_bytes(const RungParams& params) {
  return static_cast<size_t>(unfused_sizes(params).elements) * (sizeof(float) + 2);
}

}  // namespace flashcore::cuda::ladder
