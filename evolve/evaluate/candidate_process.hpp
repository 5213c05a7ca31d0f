// A candidate in a process of its own, which runs only while our clock does: it is stopped before a
// command is prepared, and again as soon as it answers. What it does between commands is nothing.
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
  std::string folder;  // holds nothing but the object
  std::string object;  // its file's name
  uint64_t memory_bytes;
  double load_seconds;
  double processor_seconds;  // of its whole life
};

class CandidateProcess final : public Candidate {
 public:
  // The memories outlive it. A finding says why the candidate is not there.
  static Result<std::unique_ptr<CandidateProcess>> start(const CandidateOptions& options,
                                                         const SharedMemory& inputs,
                                                         const SharedMemory& outputs,
                                                         Finding& finding);
  CandidateProcess(const CandidateProcess&) = delete;
  CandidateProcess& operator=(const CandidateProcess&) = delete;
  ~CandidateProcess() override;

  // And stops the process. Its time is what the kernel counted for all its threads together.
  Ran run(const RunCommand& command, double limit_seconds) override;
  void describe(nlohmann::ordered_json& evidence) const override;

 private:
  CandidateProcess(pid_t process, int stream) : process_(process), stream_(stream) {}
  bool receive(Answer& answer, double seconds, Finding& finding);
  Finding stop();
  std::string ending();  // waits for a process that ends: "exited with 3"
  double processor_seconds() const;

  pid_t process_;
  int stream_;
  uint32_t isolation_ = 0;
  bool ended_ = false;
};

}  // namespace flashcore::evolve
