// The choice between forward_sm90's tiles, against what was measured of both.
#include "dispatch/forward_sm90_tile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace flashcore {
namespace {

namespace sm90 = cuda::forward_sm90;

constexpr int64_t kMultiprocessors = 132;  // of the GPU that was measured

ForwardProblem problem(int64_t batch, int64_t heads, int64_t seqlen, bool causal) {
  ForwardProblem p;
  p.batch = batch;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = p.seqlen_kv = seqlen;
  p.head_dim_qk = p.head_dim_v = 64;
  p.softmax_scale = 0.125F;
  if (causal) p.band.right = 0;
  return p;
}

int rows_of(const ForwardProblem& p) {
  return sm90::kConfigs[static_cast<size_t>(choose_sm90_tile(p, kMultiprocessors))].block_q();
}

}  // namespace
}  // namespace flashcore
