#include "evolve/evaluate/check_object.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

#include "bench/process/child_process.hpp"
#include "bench/text/terminal.hpp"
#include "evolve/runner/gpu_commands.hpp"
#include "evolve/runner/launch_lines.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

constexpr size_t kMostSymbols = 1 << 20;

// Names without library versions.
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
  if (name.starts_with("_ZGV")) return true;  // vector functions of libmvec
  if (name.starts_with("__") && name.ends_with("_finite")) {
    name.remove_prefix(2);
    name.remove_suffix(7);
  }
  return std::any_of(kMath.begin(), kMath.end(), [&](std::string_view one) {
    return name == one || (name.size() == one.size() + 1 && name.starts_with(one) &&
                           (name.back() == 'f' || name.back() == 'l'));
  });
}

// The number before a phrase; 0 if it does not occur.
int64_t number_before(const std::string& line, std::string_view phrase) {
  const size_t end = line.find(phrase);
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

Finding check_gpu(const Task& task, const Program& program, const Compiled& compiled) {
  const int64_t spilled = spill_bytes(compiled);
  if (spilled > task.budgets.spill_bytes) {
    return {Outcome::resources, fmt::format("the compiler spills {} bytes, wanted at most {}",
                                            spilled, task.budgets.spill_bytes)};
  }
  LaunchLines lines;
  std::string error;
  if (load_text(compiled.object(), program).size() > kLongestLoadText) {
    return {Outcome::resources,
            fmt::format("launch lines and parameters take more than {} bytes, wanted fewer",
                        kLongestLoadText)};
  }
  if (read_launch_lines(program.source, lines, error)) return {};
  return {Outcome::compile, bench::printable(error)};
}

Result<Finding> check_symbols(const Compiled& compiled) {
  const Result<bench::ChildOutput> symbols = bench::run_child(
      {"/usr/bin/nm", "-D", "--undefined-only", compiled.object()},
      {.environment = std::vector<std::string>{"LC_ALL=C"}}, "", {10, kMostSymbols});
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
                     fmt::format("it calls {}, wanted only functions of mathematics and memory",
                                 bench::printable(name))};
    }
  }
  return Finding{};
}

}  // namespace

int64_t spill_bytes(const Compiled& compiled) {
  int64_t most = 0;
  for (const std::string& line : compiled.report) {
    most = std::max(most, number_before(line, " bytes spill stores") +
                              number_before(line, " bytes spill loads"));
  }
  return most;
}

Result<Finding> check_object(const Task& task, const Program& program, const Compiled& compiled) {
  if (compiled.object_bytes > task.budgets.object_bytes) {
    return Finding{Outcome::resources,
                   fmt::format("the object has {} bytes, wanted at most {}", compiled.object_bytes,
                               task.budgets.object_bytes)};
  }
  return task.is_gpu() ? check_gpu(task, program, compiled) : check_symbols(compiled);
}

std::string load_text(const std::string& object, const Program& program) {
  std::string text = object + "\n";
  for (const auto& [name, value] : program.values)
    text += fmt::format("value {} {}\n", name, value);
  std::istringstream lines(program.source);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("//@ launch ")) text += line + "\n";
  }
  return text;
}

}  // namespace flashcore::evolve
