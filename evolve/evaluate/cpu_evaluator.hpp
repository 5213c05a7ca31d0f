// Candidates for the CPU, stage by stage, the cheapest first: compile, budgets, gates, repeat, time,
// recheck.
#pragma once

#include <memory>
#include <string>

#include "evolve/evaluate/call_memory.hpp"
#include "evolve/evaluate/candidate_process.hpp"
#include "evolve/evaluate/compile.hpp"
#include "evolve/evaluate/evaluator.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

class CpuEvaluator final : public Evaluator {
 public:
  // `runner` is the program flashcore_evolve_runner.
  CpuEvaluator(Task task, std::string runner)
      : task_(std::move(task)), runner_(std::move(runner)) {}

  Result<Evaluation> evaluate(const Program& program, const Incumbent* incumbent) override;

 private:
  struct Attempt;
  Result<Finding> measure(Attempt& attempt, const Incumbent* incumbent);
  Result<Finding> gate(Attempt& attempt);
  Result<Finding> time(Attempt& attempt, const Incumbent* incumbent);
  Result<std::unique_ptr<CandidateProcess>> start(const Compiled& compiled,
                                                  const CallMemory& memory, Finding& finding) const;
  Result<const Compiled*> compiled_incumbent(const Program& program);

  Task task_;
  std::string runner_;
  std::string incumbent_hash_;  // of the one that is compiled already
  std::unique_ptr<Compiled> incumbent_;
};

// The runner beside this program, where the build and the installation put it.
Result<std::string> find_runner();

}  // namespace flashcore::evolve
