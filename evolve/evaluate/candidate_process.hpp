// A candidate in its own process, which runs only while our clock does: it is stopped before a
// command is prepared, and again as soon as it answers. It cannot compute between commands.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

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
  ~CandidateProcess() override;

  // Also stops the process. Its time is the kernel's count for all of its threads together.
  Ran run(const RunCommand& command, double limit_seconds) override;
  void describe(nlohmann::ordered_json& evidence) const override;

 private:
  CandidateProcess(pid_t process, int stream) : process_(process), stream_(stream) {}
  bool receive(Answer& answer, double seconds, Finding& finding);
  Finding stop();
  std::string ending();  // waits for the process to end: "exited with 3"
  double processor_seconds() const;

  pid_t process_;
  int stream_;
  uint32_t isolation_ = 0;
  bool ended_ = false;
};

}  // namespace flashcore::evolve
