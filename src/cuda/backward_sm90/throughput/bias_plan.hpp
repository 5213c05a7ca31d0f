// dBias' launches, after those that compute row statistics.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/backward_sm90/throughput/bias/params.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90::throughput {

struct BiasPlan {
  BiasTarget target = {};
  int q_tiles = 0, k_tiles = 0;
  int64_t items = 0;   // 0: dBias is not requested
  int64_t blocks = 0;  // that share them
  launch::Kernel tiles = {}, finish = {};
};

// Everything but the kernels.
BiasPlan plan_bias(const BackwardProblem& problem, int multiprocessors);
Status load_bias(BiasPlan& plan, const launch::Loader& loader, std::string_view family,
                 std::string_view prefix);
// `params` are bound; `marks`: of the items, in the workspace.
Status launch_bias(const BiasPlan& plan, const Maps& maps, const PairParams& params, void* d_bias,
                   uint32_t* marks, const launch::Launcher& launcher);

}  // namespace flashcore::cuda::backward_sm90::throughput
