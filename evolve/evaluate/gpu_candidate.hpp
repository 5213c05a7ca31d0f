// A GPU candidate: our own process loads, launches and times it, in its own GPU context.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "bench/process/child_process.hpp"
#include "evolve/evaluate/call_memory.hpp"
#include "evolve/evaluate/candidate.hpp"
#include "evolve/runner/gpu_commands.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

class GpuCandidate final : public Candidate {
 public:
  // Starts the process without waiting: creating a context takes half a second. `runner` is
  // the program flashcore_evolve_gpu_runner.
  static Result<std::unique_ptr<GpuCandidate>> start(const std::string& runner);
  GpuCandidate(const GpuCandidate&) = delete;
  GpuCandidate& operator=(const GpuCandidate&) = delete;

  // Waits only for the context.
  Status wait();
  // Loads an object. A finding says why the candidate cannot be loaded. `text`: gpu_commands.hpp.
  Status load(const Task& task, const std::string& text, const CallMemory& memory,
              Finding& finding);

  // The memory must outlive it. The GPU's time is checked against this process's clock.
  Ran run(const RunCommand& command, double limit_seconds) override;
  void describe(nlohmann::ordered_json& evidence) const override;

 private:
  explicit GpuCandidate(bench::Child child) : child_(std::move(child)) {}
  bool receive(GpuAnswerKind wanted, double seconds, GpuAnswer& answer, Finding& finding);

  bench::Child child_;
  bool is_ready_ = false;
  GpuAnswer hello_{}, loaded_{}, prepared_{};
};

}  // namespace flashcore::evolve
