// compute-sanitizer over this program: which kernels it found nothing wrong with.
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
  int findings = 0;                // lines of complaint, the tool's own context lines included
  std::vector<std::string> first;  // the first few of them
  bool passed() const { return ran && findings == 0; }
};
using SanitizerResults = std::map<std::string, SanitizerResult>;  // by rung

// What the child prints around each rung; the tool's complaints lie between.
std::string sanitizer_mark(std::string_view rung, bool begins);

// Reads the output of a tool over a child that prints marks. A rung without an end did not finish,
// and complaints outside of any rung are held against all of them.
SanitizerResults parse_sanitizer(std::string_view output, const std::vector<std::string>& rungs);

// {"passed", "ran", "findings", "first"}
nlohmann::ordered_json sanitizer_evidence(const SanitizerResult& result);

// The outputs of the tools, in the order of kSanitizerTools.
using RunningSanitizers = std::vector<std::future<Result<std::string>>>;

// Runs `arguments` of this program under each tool, all at once. Unsupported when compute-sanitizer
// is not on PATH.
RunningSanitizers start_sanitizers(const std::vector<std::string>& arguments);

// Waits for the tools: {subject: {tool: {"passed", "ran", "findings", "first"}}}. What those say that
// could run is in `results` also when another could not; its status is returned.
Status collect_sanitizers(RunningSanitizers running, const std::vector<std::string>& subjects,
                          const std::function<void(std::string_view tool)>& waits,
                          nlohmann::ordered_json& results);

}  // namespace flashcore::bench
