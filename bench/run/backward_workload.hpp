// The data of a backward problem on a device, and the judge of the gradients that kernels write.
#pragma once

#include <memory>
#include <string>

#include "bench/gate/sampled_gradients.hpp"
#include "bench/run/workload.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// dQ, dK and dV, of a suite's case.
Gradients plain_gradients(const Problem& problem);

// Whether a given problem is judged by rows: where all of its gradients would take long.
bool judged_by_rows(const Problem& problem, const Gradients& gradients);

// Why the gate of a given problem, or of a suite's case, is not computed; empty where it is.
std::string gate_refusal(const Problem& problem, const Gradients& gradients);

// Of a problem that somebody gave, with its inputs, and the gradients that flow in. O and LSE become
// those of the reference, rounded, of every head that is judged; those of others are the CPU's. The
// gate allows what a random problem's does, unless rows are judged.
Result<std::unique_ptr<Workload>> given_backward_workload(HostBackward host,
                                                          const PlanOptions& options);

// A suite's case, as TiledWorkload is one of a forward pass. O and LSE are those of the device's
// own forward kernel, and of the heads that are judged those of the reference, rounded.
class TiledBackwardWorkload : public Workload {
 public:
  static Result<std::unique_ptr<TiledBackwardWorkload>> make(const Problem& problem,
                                                             const Gradients& gradients,
                                                             const TiledInputs& inputs,
                                                             const PlanOptions& options);

  // What a peer elsewhere is judged by.
  virtual const SampledGradients& reference() const = 0;
};

}  // namespace flashcore::bench
