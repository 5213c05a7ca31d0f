// Compiles a candidate's text to a shared object that exports only its entry point.
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

// Our programs that evaluate, and the cache of compiled GPU candidates: "" for none.
struct Tools {
  std::string runner, gpu_runner;
  std::string objects;
  bool profiles = false;   // ncu counts every winning GPU candidate
  bool sanitizes = false;  // compute-sanitizer runs every GPU candidate after its gates
};
// Finds them next to this program, in the build or the installation.
Result<Tools> find_tools();

struct Compiled {
  bench::TemporaryFolder root;  // contains only the object
  int64_t object_bytes = 0;
  std::vector<std::string> report;  // compiler's remarks on optimisations; on the GPU, resources
  double seconds = 0;               // 0: taken from the cache

  std::string object() const { return root.path() + "/" + kObject; }
};

// Null, and the reason in `finding`, if the candidate is to
// blame: it does not compile, or takes too long.
Result<std::unique_ptr<Compiled>> compile(const Task& task, const Program& program,
                                          const Tools& tools, Finding& finding);

nlohmann::ordered_json compiled_json(const Task& task, const Compiled& compiled);

}  // namespace flashcore::evolve
