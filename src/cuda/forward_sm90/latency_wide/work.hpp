// The unit of work of forward_sm90_latency:wide: a cluster.
#pragma once

#include "cuda/forward_sm90/latency_wide/config.hpp"
#include "kernel/work_unit.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

inline constexpr WorkUnit kWorkUnit{.tile = "forward_sm90_latency:wide",
                                    .block_q = kBlockQ,
                                    .group_q = kBlockQ,
                                    .step_keys = kGroups * kBlockKv,
                                    .sms = kRanks};

}  // namespace flashcore::cuda::forward_sm90::latency_wide
