// Evaluates candidates in stages, cheapest first: compile, budgets, gates, repeat, time, recheck.
// The task says where they run: in a process for the CPU, or on the GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "evolve/evaluate/call_memory.hpp"
#include "evolve/evaluate/candidate.hpp"
#include "evolve/evaluate/compile.hpp"
#include "evolve/evaluate/evaluator.hpp"
#include "evolve/evaluate/gpu_candidate.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

class StageEvaluator final : public Evaluator {
 public:
  explicit StageEvaluator(Task task, Tools tools)
      : task_(std::move(task)), tools_(std::move(tools)) {}

  Result<Evaluation> evaluate(const Program& program, const Incumbent* incumbent) override;

 private:
  struct Attempt;
  Result<Finding> measure(Attempt& attempt, const Incumbent* incumbent);
  Result<Finding> gate(Attempt& attempt);
  Result<Finding> time(Attempt& attempt, const Incumbent* incumbent);
  Result<std::unique_ptr<Candidate>> start(const Compiled& compiled, const Program& program,
                                           const CallMemory& memory, Finding& finding);
  Status start_ahead();
  Result<const Compiled*> compiled_incumbent(const Program& program);

  Task task_;
  Tools tools_;
  std::string incumbent_hash_;  // hash of the compiled incumbent
  std::unique_ptr<Compiled> incumbent_;
  std::vector<std::unique_ptr<GpuCandidate>> ahead_;  // have a context, but no candidate yet
};

}  // namespace flashcore::evolve
