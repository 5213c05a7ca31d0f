// A problem with its data on a device, ready for several kernels, and the judge of their results.
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

  // Waits, and judges the output of the plan that was prepared last.
  virtual Result<Verdict> judge() = 0;

  virtual std::string judged() const = 0;  // "all rows", "1024 of 131072 rows"
  virtual double flop() = 0;               // for the timed pass, with the lengths

  // The rows that peers in other processes compute; null: the inputs are only here.
  virtual const JudgedRows* rows() const { return nullptr; }
};

// Inputs from files, or drawn element by element, with any option.
Result<std::unique_ptr<Workload>> given_workload(Result<HostProblem> host,
                                                 const PlanOptions& options);

// A problem of q, k, v, o and LSE, contiguous or over a paged cache, of any size, with repeated
// pieces as inputs, which peers can have, too.
class TiledWorkload : public Workload {
 public:
  using Workload::prepare;
  // `keys`: in use per entry, if the problem has lengths. `copies`: of K and V; calls
  // alternate between them.
  static Result<std::unique_ptr<TiledWorkload>> make(const Problem& problem,
                                                     std::span<const int32_t> keys, int64_t copies,
                                                     const TiledInputs& inputs,
                                                     const PlanOptions& options);

  // prepare() for a peer in this process, on the kernels' tensors; it writes O only.
  virtual Result<TimedCall> prepare(NativePeer& peer) = 0;
  virtual Result<Verdict> judge_output() = 0;
};

}  // namespace flashcore::bench
