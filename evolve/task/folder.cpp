#include "evolve/task/folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "bench/device/known_gpus.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/io/atomic_file.hpp"
#include "bench/io/byte_source.hpp"
#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLargestSource = 16 << 20;

std::string seed_name(const std::string& language) {
  return language == "c" ? "seed.c" : language == "cuda" ? "seed.cu" : "seed.cpp";
}

// Returns the language of a seed, which selects the evaluator.
Result<std::string> language_of(const std::string& path) {
  const std::string suffix = fs::path(path).extension().string();
  if (suffix == ".c") return std::string("c");
  if (suffix == ".cpp" || suffix == ".cc") return std::string("c++");
  if (suffix == ".cu") return std::string("cuda");
  return invalid("--from: is '{}', wanted a .c, .cpp or .cu file", path);
}

}  // namespace

std::string shipped_folder() {
  const Result<std::string> self = bench::this_program();
  if (!self.ok()) return "";
  return (fs::path(*self).parent_path().parent_path() / "share/flashcore/evolve").string();
}

Result<std::string> shipped_or_file(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error) || fs::path(name).has_extension()) return name;
  const std::string path = shipped_folder() + "/" + name + ".cu";
  if (name.find("..") == std::string::npos && fs::is_regular_file(path, error)) return path;
  return invalid(
      "--from: is '{}', wanted a file, or a kernel of this library such as "
      "ladder/08_register_softmax",
      name);
}

Result<std::string> read_text(const std::string& path) {
  return io::read_text(path, kLargestSource);
}

Status make_folder(const std::string& folder, const TaskRequest& request) {
  Result<std::string> language = language_of(request.source);
  if (!language.ok()) return language.status();
  Result<std::string> source = read_text(request.source);
  if (!source.ok()) return source.status();
  if (Result<Program> seed = make_program(*source, {}); !seed.ok()) return seed.status();
  const fs::path root = folder;
  std::error_code error;
  if (fs::exists(root / "task.json", error)) {
    return invalid("{}: has a task already, wanted a new folder", folder);
  }
  Task task;
  task.language = *language;
  task.shapes = request.shapes;
  task.causal = request.causal;
  task.dtype = task.is_gpu() ? request.dtype : DType::f32;
  if (request.gpu != nullptr && !task.is_gpu()) {
    return invalid("--gpu: is '{}', wanted it with a .cu file", request.gpu->name);
  }
  FLASHCORE_RETURN_IF_ERROR(describe_machine(task, request.gpu_runner, request.gpu));
  const nlohmann::ordered_json json = task_json(task);
  if (Result<Task> read = task_from(json); !read.ok()) return read.status();
  fs::create_directories(root, error);
  if (error) return invalid("{}: cannot be made ({})", folder, error.message());
  FLASHCORE_RETURN_IF_ERROR(io::write_text((root / seed_name(task.language)).string(), *source));
  return bench::write_json((root / "task.json").string(), json);
}

Result<RunFolder> open_folder(const std::string& folder) {
  const fs::path root = folder;
  std::error_code error;
  if (!fs::exists(root / "task.json", error)) {
    return invalid("{}: has no task.json, wanted a folder made by flashcore evolve init", folder);
  }
  Result<nlohmann::ordered_json> json = bench::read_json((root / "task.json").string());
  if (!json.ok()) return json.status();
  use_current_keys(*json);
  Result<Task> task = task_from(*json);
  if (!task.ok()) return invalid("{}/task.json: {}", folder, task.status().message());
  Result<std::string> source = read_text((root / seed_name(task->language)).string());
  if (!source.ok()) return source.status();
  Result<Program> seed = make_program(std::move(*source), {});
  if (!seed.ok()) return seed.status();
  return RunFolder{std::move(*task), std::move(*json), std::move(*seed),
                   (root / "evolve.db").string(), (root / "objects").string()};
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const std::string path = (fs::path(folder) / "lock").string();
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    return invalid("{}: cannot be written, wanted a folder that you may write to", path);
  FolderLock lock(file);
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
  return invalid("{}: another run works here, wanted one at a time", folder);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace flashcore::evolve
