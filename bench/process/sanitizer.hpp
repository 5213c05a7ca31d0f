// Runs compute-sanitizer over this program, and finds out which kernels have no findings.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

inline constexpr std::string_view kSanitizerTools[] = {"memcheck", "racecheck", "initcheck",
                                                       "synccheck"};

struct SanitizerResult {
  bool ran = false;                // began and ended under the tool
  int findings = 0;                // lines of complaint, including the tool's context lines
  std::vector<std::string> first;  // the first few of them
  bool passed() const { return ran && findings == 0; }
};
using SanitizerResults = std::map<std::string, SanitizerResult>;  // rung to result

// The child prints this around each rung; the tool's complaints appear between.
std::string sanitizer_mark(std::string_view rung, bool begins);

// Parses the output of a tool over a child that prints marks. A rung without an end mark did not
// finish, and complaints outside of any rung count against all of them.
SanitizerResults parse_sanitizer(std::string_view output, const std::vector<std::string>& rungs);

// {"passed", "ran", "findings", "first"}
nlohmann::ordered_json sanitizer_evidence(const SanitizerResult& result);

// The outputs of the tools, in the order of kSanitizerTools.
using RunningSanitizers = std::vector<std::future<Result<std::string>>>;

// Runs this program with `arguments` under each tool, all at once. Unsupported if compute-sanitizer
// is not on PATH.
RunningSanitizers start_sanitizers(const std::vector<std::string>& arguments);

// Waits for the tools: {subject: {tool: {"passed", "ran", "findings", "first"}}}. If one tool could
// not run, `results` still has the others' results, and its status is returned.
Status collect_sanitizers(RunningSanitizers running, const std::vector<std::string>& subjects,
                          const std::function<void(std::string_view tool)>& waits,
                          nlohmann::ordered_json& results);

}  // namespace flashcore::bench
