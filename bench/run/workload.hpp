// A problem with its data on a device, ready for several kernels, and the judge of what they write.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/io/problem_inputs.hpp"
#include "bench/peers/native_peer.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class Workload {
 public:
  virtual ~Workload() = default;

  // Poisons the outputs and binds a plan to the data; the call lives as long as the workload.
  virtual Result<TimedCall> prepare(const Plan& plan) = 0;

  // Waits, and judges what the plan prepared last wrote.
  virtual Result<Verdict> judge() = 0;

  virtual std::string judged() const = 0;  // "all rows", "1024 of 131072 rows"
  virtual double flop() = 0;               // of the pass that is timed, with the lengths
};

// Inputs from files, or drawn element by element, with any option.
Result<std::unique_ptr<Workload>> given_workload(Result<HostProblem> host,
                                                 const PlanOptions& options);

// A problem of q, k, v, o and LSE, contiguous or over a cache in pages, with repeated pieces as inputs,
// of any size; a peer
// can have the same ones, and rows are sampled by the same reference.
class TiledWorkload : public Workload {
 public:
  using Workload::prepare;
  // `keys`: in use of each entry, where the problem has lengths. `copies` of K and V, which calls take
  // in turn.
  static Result<std::unique_ptr<TiledWorkload>> make(const Problem& problem,
                                                     std::span<const int32_t> keys, int64_t copies,
                                                     const TiledInputs& inputs,
                                                     const PlanOptions& options);

  // What a peer elsewhere is judged by.
  virtual const SampledReference& reference() const = 0;

  // As for a plan, for a peer that runs here on the tensors of the kernels; it writes O only.
  virtual Result<TimedCall> prepare(NativePeer& peer) = 0;
  virtual Result<Verdict> judge_output() = 0;
};

}  // namespace flashcore::bench
