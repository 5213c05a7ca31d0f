// A problem with its data on a device, ready for several kernels, and the judge of what they write.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bench/gates.hpp"
#include "bench/peers/native_peer.hpp"
#include "bench/sampled_gate.hpp"
#include "bench/tiled_inputs.hpp"
#include "bench/timing.hpp"
#include "cli/problem_inputs.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

class Workload {
 public:
  virtual ~Workload() = default;

  // Poisons the outputs and binds a plan to the data; the call lives as long as the workload.
  virtual Result<bench::TimedCall> prepare(const Plan& plan) = 0;

  // Waits, and judges what the plan prepared last wrote.
  virtual Result<bench::Verdict> judge() = 0;

  virtual std::string judged() const = 0;  // "all rows", "1024 of 131072 rows"
};

// Inputs from files, or drawn element by element, with any option.
Result<std::unique_ptr<Workload>> given_workload(const ProblemInputs& inputs,
                                                 const PlanOptions& options);

// A contiguous problem of q, k, v, o and LSE with repeated pieces as inputs, of any size; a peer
// can have the same ones, and rows are sampled by the same reference.
class TiledWorkload : public Workload {
 public:
  using Workload::prepare;
  static Result<std::unique_ptr<TiledWorkload>> make(const Problem& problem,
                                                     const bench::TiledInputs& inputs,
                                                     const PlanOptions& options);

  // What a peer elsewhere is judged by.
  virtual const bench::SampledReference& reference() const = 0;

  // As for a plan, for a peer that runs here on the tensors of the kernels; it writes O only.
  virtual Result<bench::TimedCall> prepare(bench::NativePeer& peer) = 0;
  virtual Result<bench::Verdict> judge_output() = 0;
};

}  // namespace flashcore::cli
