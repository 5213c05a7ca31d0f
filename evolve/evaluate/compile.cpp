#include "evolve/evaluate/compile.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostCompilerOutput = 1 << 20;
constexpr size_t kMostLines = 40;
constexpr uint64_t kCompilerMemory = uint64_t{4} << 30;
constexpr uint64_t kCompilerFile = uint64_t{256} << 20;

const std::vector<std::string> kEnvironment = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"};

// The first lines that hold a word, without control characters.
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

// Names without the version of a library.
bool may_import(std::string_view name) {
  static constexpr std::array<std::string_view, 24> kNames = {"memcpy",
                                                              "memset",
                                                              "memmove",
                                                              "memcmp",
                                                              "malloc",
                                                              "calloc",
                                                              "realloc",
                                                              "free",
                                                              "aligned_alloc",
                                                              "posix_memalign",
                                                              "abort",
                                                              "__stack_chk_fail",
                                                              "__cxa_finalize",
                                                              "__gmon_start__",
                                                              "_ITM_deregisterTMCloneTable",
                                                              "_ITM_registerTMCloneTable",
                                                              "__memcpy_chk",
                                                              "__memset_chk",
                                                              "__memmove_chk",
                                                              "qsort",
                                                              "bsearch",
                                                              "strlen",
                                                              "__assert_fail",
                                                              "__cxa_atexit"};
  static constexpr std::array<std::string_view, 30> kMath = {
      "exp",   "exp2", "exp10", "expm1", "log",  "log2",  "log10", "log1p",  "pow",   "sqrt",
      "cbrt",  "fma",  "fmax",  "fmin",  "fmod", "floor", "ceil",  "round",  "rint",  "nearbyint",
      "trunc", "tanh", "sin",   "cos",   "erf",  "frexp", "ldexp", "scalbn", "lrint", "lround"};
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  if (name.starts_with("_ZGV")) return true;  // vectors of libmvec
  if (name.starts_with("__") && name.ends_with("_finite")) {
    name.remove_prefix(2);
    name.remove_suffix(7);
  }
  return std::any_of(kMath.begin(), kMath.end(), [&](std::string_view one) {
    return name == one || (name.size() == one.size() + 1 && name.starts_with(one) &&
                           (name.back() == 'f' || name.back() == 'l'));
  });
}

}  // namespace

Result<std::unique_ptr<Compiled>> compile(const Task& task, const Program& program,
                                          const std::string& runner, Finding& finding) {
  Result<bench::TemporaryFolder> work = bench::TemporaryFolder::make();
  if (!work.ok()) return work.status();
  Result<bench::TemporaryFolder> root = bench::TemporaryFolder::make();
  if (!root.ok()) return root.status();
  const fs::path folder = work->path();
  const std::string source = task.language == "c" ? "candidate.c" : "candidate.cpp";
  std::ofstream(folder / source, std::ios::binary) << text_of(program);
  std::ofstream(folder / "exports") << "{ global: " << kEntryPoint << "; local: *; };\n";
  std::vector<std::string> words = {
      runner, "limited", std::to_string(kCompilerMemory),
      std::to_string(static_cast<uint64_t>(std::ceil(task.budgets.compile_seconds)) + 1),
      std::to_string(kCompilerFile)};
  words.insert(words.end(), task.compiler.begin(), task.compiler.end());
  words.insert(words.end(), {"-shared", "-fPIC", "-o", kObject, source, "-Wl,-z,defs", "-Wl,-z,now",
                             "-Wl,--version-script=exports", "-lm"});
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> environment = kEnvironment;
  environment.push_back("TMPDIR=" + folder.string());
  const Result<bench::LimitedOutput> said =
      bench::run_limited(words, "", {task.budgets.compile_seconds, kMostCompilerOutput},
                         {.errors = true, .folder = folder.string(), .environment = environment});
  if (!said.ok()) return said.status();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::error_code error;
  if (said->timed_out) {
    finding = {Outcome::timeout, fmt::format("the compiler took more than {:.3g} s, the budget",
                                             task.budgets.compile_seconds)};
  } else if (said->exit_status == 127) {
    return unsupported("compiler: '{}' is not here, wanted a C or C++ compiler",
                       task.compiler.front());
  } else if (said->exit_status != 0 || !fs::is_regular_file(folder / kObject, error)) {
    finding = {Outcome::compile, first_error(said->text)};
  }
  if (!finding.ok()) return std::unique_ptr<Compiled>();
  auto compiled = std::make_unique<Compiled>(Compiled{std::move(*root), 0, {}, seconds});
  fs::copy_file(folder / kObject, fs::path(compiled->root.path()) / kObject, error);
  if (error) return Status(StatusCode::internal, "the shared object cannot be copied");
  compiled->object_bytes =
      static_cast<int64_t>(fs::file_size(fs::path(compiled->root.path()) / kObject, error));
  compiled->report = lines_with(said->text, "optimized:");
  return compiled;
}

Result<Finding> check_object(const Task& task, const Compiled& compiled) {
  if (compiled.object_bytes > task.budgets.object_bytes) {
    return Finding{Outcome::resources,
                   fmt::format("the shared object has {} bytes, the budget is {}",
                               compiled.object_bytes, task.budgets.object_bytes)};
  }
  const std::string object = compiled.root.path() + "/" + kObject;
  const Result<bench::LimitedOutput> symbols =
      bench::run_limited({"/usr/bin/nm", "-D", "--undefined-only", object}, "",
                         {10, kMostCompilerOutput}, {.environment = kEnvironment});
  if (!symbols.ok()) return symbols.status();
  if (symbols->exit_status != 0 || symbols->timed_out) {
    return Finding{Outcome::constraints, "the symbols of the shared object cannot be read"};
  }
  std::istringstream lines(symbols->text);
  for (std::string line; std::getline(lines, line);) {
    std::string name = line.substr(line.find_last_of(' ') + 1);
    name = name.substr(0, name.find('@'));
    if (!may_import(name)) {
      return Finding{Outcome::constraints,
                     fmt::format("it calls {}, wanted functions of mathematics and memory alone",
                                 bench::printable(name))};
    }
  }
  return Finding{};
}

}  // namespace flashcore::evolve
