// The folder of a run: task.json, the seed's source, and the store's file.
#pragma once

#include <string>
#include <vector>

#include "evolve/task/program.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

struct TaskRequest {
  std::string source;  // a .c, .cpp or .cu file
  std::vector<CallShape> shapes;
  bool causal = false;
  DType dtype = DType::f16;  // of a GPU task
  std::string gpu_runner = {};
  const bench::KnownGpu* gpu = nullptr;  // of a GPU task; none: the GPU of this machine
};

// Makes the folder. Refuses one that has a task.
Status make_folder(const std::string& folder, const TaskRequest& request);

struct RunFolder {
  Task task;
  nlohmann::ordered_json task_json;
  Program seed;
  std::string store;    // its path
  std::string objects;  // the folder of compiled GPU candidates
};

Result<RunFolder> open_folder(const std::string& folder);

// Held by the process that runs in a folder, until it ends in any way.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_;
};

// A file; or, as "ladder/12_mma_sync", a kernel of this library, which the build and the installation
// put into share/flashcore/evolve as one file.
Result<std::string> shipped_or_file(const std::string& name);
inline constexpr const char* kLadder = "ladder.jsonl";  // the rungs as proposals, there
std::string shipped_folder();

// A whole file of text, of at most 16 MiB.
Result<std::string> read_text(const std::string& path);
Status write_file(const std::string& path, const std::string& text);

}  // namespace flashcore::evolve
