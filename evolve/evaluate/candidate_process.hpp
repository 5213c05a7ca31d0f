// A candidate in its own process, which runs only while our clock does: it is stopped before a
// command is prepared, and again as soon as it answers. It cannot compute between commands.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "bench/process/child_process.hpp"
#include "evolve/evaluate/candidate.hpp"
#include "evolve/evaluate/shared_memory.hpp"
#include "evolve/runner/commands.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

struct CandidateOptions {
  std::string runner;  // the program
  std::string folder;  // contains only the object
  std::string object;  // its file name
  uint64_t memory_bytes;
  double load_seconds;
  double processor_seconds;  // for its whole life
};

class CandidateProcess final : public Candidate {
 public:
  // The memories must outlive it. A finding says why the candidate did not start.
  static Result<std::unique_ptr<CandidateProcess>> start(const CandidateOptions& options,
                                                         const SharedMemory& inputs,
                                                         const SharedMemory& outputs,
                                                         Finding& finding);
  CandidateProcess(const CandidateProcess&) = delete;
  CandidateProcess& operator=(const CandidateProcess&) = delete;

  // Also stops the process. Its time is the kernel's count for all of its threads together.
  Ran run(const RunCommand& command, double limit_seconds) override;
  void describe(nlohmann::ordered_json& evidence) const override;

 private:
  explicit CandidateProcess(bench::Child child) : child_(std::move(child)) {}
  bool receive(Answer& answer, double seconds, Finding& finding);
  Finding stop();
  std::string ending();  // ends the process: "exited with 3"
  double processor_seconds() const;

  bench::Child child_;
  uint32_t isolation_ = 0;
};

}  // namespace flashcore::evolve
