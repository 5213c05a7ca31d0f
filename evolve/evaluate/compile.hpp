// A candidate's text becomes a shared object that exports its entry point and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/process/temporary_folder.hpp"
#include "evolve/evaluate/outcome.hpp"
#include "evolve/task/program.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

inline constexpr const char* kObject = "candidate.so";  // on the GPU a cubin

// Programs of ours that evaluate, and where compiled GPU candidates are kept: "" for nowhere.
struct Tools {
  std::string runner, gpu_runner;
  std::string objects;
  bool profiles = false;   // ncu counts each GPU candidate that wins
  bool sanitizes = false;  // compute-sanitizer runs each GPU candidate after its gates
};
// Beside this program, where the build and the installation put them.
Result<Tools> find_tools();

struct Compiled {
  bench::TemporaryFolder root;  // holds the object, and nothing else
  int64_t object_bytes = 0;
  std::vector<std::string> report;  // what the compiler said it optimised; on the GPU, used
  double seconds = 0;               // 0: it had been compiled before

  std::string object() const { return root.path() + "/" + kObject; }
};

// Null, and why in `finding`, where the candidate is to
// blame: it does not compile, or takes too long.
Result<std::unique_ptr<Compiled>> compile(const Task& task, const Program& program,
                                          const Tools& tools, Finding& finding);

nlohmann::ordered_json compiled_json(const Task& task, const Compiled& compiled);

}  // namespace flashcore::evolve
