// The data of a backward problem on a device, and the judge of the gradients that kernels compute.
#pragma once

#include <memory>
#include <string>

#include "bench/gate/sampled_gradients.hpp"
#include "bench/run/workload.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// dQ, dK and dV for a suite's case.
Gradients plain_gradients(const Problem& problem);

// Returns whether a given problem is judged by rows, because all of its gradients would take too long.
bool judged_by_rows(const Problem& problem, const Gradients& gradients);

// Returns why a given problem or a suite's case has no gate; empty if it has one.
std::string gate_refusal(const Problem& problem, const Gradients& gradients);

// A given problem with its inputs and incoming gradients. O and LSE of the judged heads become the
// reference's, rounded; the others are the CPU's. The gate has the limits of a random problem,
// unless rows are judged.
Result<std::unique_ptr<Workload>> given_backward_workload(HostBackward host,
                                                          const PlanOptions& options);

// A suite's case; the backward form of TiledWorkload. O and LSE come from the device's own forward
// kernel, and for the judged heads from the reference, rounded.
Result<std::unique_ptr<Workload>> tiled_backward_workload(const Problem& problem,
                                                          const Gradients& gradients,
                                                          const TiledInputs& inputs,
                                                          const PlanOptions& options);

}  // namespace flashcore::bench
