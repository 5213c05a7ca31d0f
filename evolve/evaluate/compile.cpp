#include "evolve/evaluate/compile.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "bench/io/atomic_file.hpp"
#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "evolve/evaluate/check_object.hpp"
#include "evolve/task/folder.hpp"
#include "evolve/task/sha256.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostCompilerOutput = 1 << 20;
constexpr size_t kMostLines = 40;
constexpr uint64_t kCompilerMemory = uint64_t{4} << 30;
constexpr uint64_t kGpuCompilerMemory = uint64_t{16} << 30;
constexpr uint64_t kCompilerFile = uint64_t{256} << 20;

const std::vector<std::string> kEnvironment = {
    "PATH=/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"};

// The first lines that contain a word, without control characters.
std::vector<std::string> lines_with(const std::string& text, std::string_view word) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && found.size() < kMostLines;) {
    if (line.find(word) != std::string::npos)
      found.push_back(bench::printable(line.substr(0, 300)));
  }
  return found;
}

std::string first_error(const std::string& output) {
  for (const char* const word : {"error:", "undefined reference", ":"}) {
    const std::vector<std::string> found = lines_with(output, word);
    if (!found.empty()) return found.front();
  }
  return "the compiler failed and said nothing";
}

// The compiler's command line for a task, and the path of its object.
std::vector<std::string> command_of(const Task& task) {
  std::vector<std::string> words = task.compiler;
  if (task.is_gpu()) {
    words.insert(words.end(), {"-o", kObject, "candidate.cu"});
    return words;
  }
  words.insert(words.end(), {"-shared", "-fPIC", "-o", kObject,
                             task.language == "c" ? "candidate.c" : "candidate.cpp", "-Wl,-z,defs",
                             "-Wl,-z,now", "-Wl,--version-script=exports", "-lm"});
  return words;
}

// The path where an object is cached, without its suffix. "": not cached. CPU compilers are fast.
std::string kept_at(const Task& task, const Program& program, const Tools& tools) {
  if (!task.is_gpu() || tools.objects.empty()) return "";
  std::string all;
  for (const std::string& word : command_of(task)) all += word + "\n";
  return tools.objects + "/" + sha256(all + text_of(program));
}

void keep(const std::string& path, const Compiled& compiled) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  std::string said;
  for (const std::string& line : compiled.report) said += line + "\n";
  // The object is moved last: a cached entry is complete.
  (void)io::write_text(path + ".txt", said);
  const std::string part = path + ".part";
  if (fs::copy_file(compiled.object(), part, fs::copy_options::overwrite_existing, error)) {
    fs::rename(part, path + ".cubin", error);
  }
}

std::vector<std::string> report_of(const Task& task, const std::string& said) {
  if (!task.is_gpu()) return lines_with(said, "optimized:");
  std::vector<std::string> lines = lines_with(said, "bytes stack frame");
  for (std::string& line : lines_with(said, "Used ")) lines.push_back(std::move(line));
  return lines;
}

Result<std::unique_ptr<Compiled>> taken(bench::TemporaryFolder root, const fs::path& object,
                                        std::vector<std::string> report, double seconds) {
  auto compiled =
      std::make_unique<Compiled>(Compiled{std::move(root), 0, std::move(report), seconds});
  std::error_code error;
  fs::copy_file(object, compiled->object(), error);
  if (error) return Status(StatusCode::internal, "the object cannot be copied");
  compiled->object_bytes = static_cast<int64_t>(fs::file_size(compiled->object(), error));
  return compiled;
}

}  // namespace

Result<Tools> find_tools() {
  const Result<std::string> self = bench::this_program();
  if (!self.ok()) return self.status();
  Tools tools;
  for (const auto& [path, name] : {std::pair{&tools.runner, "flashcore_evolve_runner"},
                                   {&tools.gpu_runner, "flashcore_evolve_gpu_runner"}}) {
    *path = (fs::path(*self).parent_path() / name).string();
    std::error_code error;
    if (fs::is_regular_file(*path, error)) continue;
    return unsupported("evolve: there is no {}, wanted it next to the command", *path);
  }
  return tools;
}

Result<std::unique_ptr<Compiled>> compile(const Task& task, const Program& program,
                                          const Tools& tools, Finding& finding) {
  Result<bench::TemporaryFolder> work = bench::TemporaryFolder::make();
  if (!work.ok()) return work.status();
  Result<bench::TemporaryFolder> root = bench::TemporaryFolder::make();
  if (!root.ok()) return root.status();
  const std::string kept = kept_at(task, program, tools);
  std::error_code error;
  if (!kept.empty() && fs::is_regular_file(kept + ".cubin", error)) {
    const Result<std::string> said = read_text(kept + ".txt");
    return taken(std::move(*root), kept + ".cubin", report_of(task, said.ok() ? *said : ""), 0);
  }
  const fs::path folder = work->path();
  const std::vector<std::string> command = command_of(task);
  const char* const source = task.is_gpu()          ? "candidate.cu"
                             : task.language == "c" ? "candidate.c"
                                                    : "candidate.cpp";
  std::ofstream(folder / source, std::ios::binary) << text_of(program);
  std::ofstream(folder / "exports") << "{ global: " << kEntryPoint << "; local: *; };\n";
  std::vector<std::string> words = {
      tools.runner, "limited", std::to_string(task.is_gpu() ? kGpuCompilerMemory : kCompilerMemory),
      std::to_string(static_cast<uint64_t>(std::ceil(task.budgets.compile_seconds)) + 1),
      std::to_string(kCompilerFile)};
  words.insert(words.end(), command.begin(), command.end());
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> environment = kEnvironment;
  environment.push_back("TMPDIR=" + folder.string());
  const Result<bench::ChildOutput> said = bench::run_child(
      words, {.errors = true, .folder = folder.string(), .environment = environment}, "",
      {task.budgets.compile_seconds, kMostCompilerOutput});
  if (!said.ok()) return said.status();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (said->timed_out) {
    finding = {Outcome::timeout, fmt::format("the compiler took more than {:.3g} s, wanted less",
                                             task.budgets.compile_seconds)};
  } else if (said->exit_status == 127) {
    return unsupported("compiler: '{}' is not here, wanted {}", task.compiler.front(),
                       task.is_gpu() ? "CUDA's compiler" : "a C or C++ compiler");
  } else if (said->exit_status != 0 || !fs::is_regular_file(folder / kObject, error)) {
    finding = {Outcome::compile, first_error(said->text)};
  }
  if (!finding.ok()) return std::unique_ptr<Compiled>();
  Result<std::unique_ptr<Compiled>> compiled =
      taken(std::move(*root), folder / kObject, report_of(task, said->text), seconds);
  if (compiled.ok() && !kept.empty()) keep(kept, **compiled);
  return compiled;
}

nlohmann::ordered_json compiled_json(const Task& task, const Compiled& compiled) {
  nlohmann::ordered_json json = {{"object_bytes", compiled.object_bytes},
                                 {"seconds", compiled.seconds},
                                 {"report", compiled.report}};
  if (task.is_gpu()) json["spill_bytes"] = spill_bytes(compiled);
  return json;
}

}  // namespace flashcore::evolve
