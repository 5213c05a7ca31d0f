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
  DType dtype = DType::f16;  // for a GPU task
  std::string gpu_runner = {};
  const bench::KnownGpu* gpu = nullptr;  // for a GPU task; null: the GPU of this machine
};

// Creates the folder. Refuses one that already has a task.
Status make_folder(const std::string& folder, const TaskRequest& request);

struct RunFolder {
  Task task;
  nlohmann::ordered_json task_json;
  Program seed;
  std::string store;    // its path
  std::string objects;  // the folder of compiled GPU candidates
};

Result<RunFolder> open_folder(const std::string& folder);

// A lock of the process that runs in a folder; released however that process ends.
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

// Returns the path of a file; or, for a name such as "ladder/12_mma_sync", of this library's kernel
// that the build and the installation put into share/flashcore/evolve as one file.
Result<std::string> shipped_or_file(const std::string& name);
inline constexpr const char* kLadder = "ladder.jsonl";  // the rungs as proposals, in that folder
std::string shipped_folder();

// Reads a whole text file of at most 16 MiB.
Result<std::string> read_text(const std::string& path);

}  // namespace flashcore::evolve
