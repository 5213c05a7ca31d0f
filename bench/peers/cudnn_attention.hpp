// The graph of operations by which cuDNN's engines recognise attention.
//
//   scores = Q K^T * scale -> (keep row + Skv - Sq >= column) -> max, sub, exp, sum, div -> P V = O
//
// Nothing between the products is in memory. With Q, K and V in e4m3, whose engine (cuDNN 9.19 on
// Hopper) takes only an fp8 O, scales are scalars on the device, one per tensor:
//
//   Q K^T * scale * descale_q * descale_k -> ... -> P -> amax_s
//   e4m3(P * scale_s) V * descale_s * descale_v -> amax_o; * scale_o = O
#pragma once

#include <cstdint>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class CudnnGraph;

// Ids of a run's memory and scalars; kHidden: the score of a masked pair.
namespace cudnn_id {
inline constexpr int64_t kQ = 1, kK = 2, kV = 3, kO = 4, kScale = 5, kHidden = 6, kSeqlenQ = 7,
                         kSeqlenKv = 8;
// Ids of fp8 scalars, each on the device.
inline constexpr int64_t kDescaleQ = 9, kDescaleK = 10, kDescaleV = 11, kDescaleS = 12,
                         kScaleS = 13, kScaleO = 14, kAmaxS = 15, kAmaxO = 16;
}  // namespace cudnn_id

// A single query is the last one, which sees every key.
bool is_masked(const Problem& problem);

// Returns whether the diagonal differs from a square's: the last query sees the last key.
bool is_shifted(const Problem& problem);

// Returns why cuDNN does not take a problem without features; ok if it does.
Status cudnn_takes(const Problem& problem);

void add_cudnn_attention(CudnnGraph& graph, const Problem& problem);

struct CudnnNumber {
  int64_t id;
  float value;
};

// The scalars for fp8 inputs without scales, and for an O that is stored divided by `o_scale`.
std::vector<CudnnNumber> cudnn_fp8_numbers(float o_scale);

}  // namespace flashcore::bench
