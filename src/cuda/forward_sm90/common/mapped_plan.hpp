// Plans of the latency kernels, which copy through tensor maps. The caller chooses the instance.
#pragma once

#include <string>
#include <string_view>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_sm90 {

struct MappedKernel {
  std::string_view name, family;
  int block_q;  // queries per cluster
  int cluster;  // blocks per cluster
  std::string instance;
};

// Tensor maps have boxes of 64 rows.
Result<PlannedKernel> plan_mapped(const ForwardProblem& p, const PlanContext& context,
                                  const MappedKernel& kernel);

// A variant of forward_sm90_latency, compiled for `targets`.
Variant mapped_variant(std::string_view name, std::string_view targets,
                       Result<PlannedKernel> (*plan)(const ForwardProblem&, const PlanContext&));

}  // namespace flashcore::cuda::forward_sm90
