#include "bench/process/sanitizer.hpp"

#include <nlohmann/json.hpp>

#include "bench/process/child_process.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr std::string_view kBegins = "flashcore: begins ";
constexpr std::string_view kEnds = "flashcore: ends ";
constexpr std::string_view kToolLine = "=========";

bool is_complaint(std::string_view line) {
  if (!line.starts_with(kToolLine)) return false;
  for (const std::string_view harmless : {"COMPUTE-SANITIZER", "SUMMARY"}) {
    if (line.find(harmless) != std::string_view::npos) return false;
  }
  return line.find_first_not_of("= ") != std::string_view::npos;
}

void complain(SanitizerResult& result, std::string_view line) {
  constexpr size_t kKept = 8;
  ++result.findings;
  if (result.first.size() < kKept) {
    result.first.emplace_back(line.substr(line.find_first_not_of("= ")));
  }
}

Result<std::string> run_sanitizer(std::string_view tool,
                                  const std::vector<std::string>& arguments) {
  if (!on_path("compute-sanitizer")) {
    return unsupported("compute-sanitizer: is not on PATH; it comes with the CUDA toolkit");
  }
  const Result<std::string> program = this_program();
  if (!program.ok()) return program.status();
  std::vector<std::string> words = {"compute-sanitizer", "--tool", std::string(tool),
                                    "--print-limit",     "10",     *program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Result<ChildOutput> output = run_child(words, {.errors = true, .own_group = false});
  if (!output.ok()) return output.status();
  return std::move(output->text);
}

}  // namespace

std::string sanitizer_mark(std::string_view rung, bool begins) {
  return fmt::format("{}{}", begins ? kBegins : kEnds, rung);
}

SanitizerResults parse_sanitizer(std::string_view output, const std::vector<std::string>& rungs) {
  SanitizerResults results;
  for (const std::string& rung : rungs) results[rung];
  auto current = results.end();
  while (!output.empty()) {
    const size_t end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    if (line.starts_with(kBegins)) {
      current = results.find(std::string(line.substr(kBegins.size())));
      if (current != results.end()) current->second.ran = false;  // reset until it ends, each time
    } else if (line.starts_with(kEnds)) {
      if (current != results.end()) current->second.ran = true;
      current = results.end();
    } else if (!is_complaint(line)) {
      continue;
    } else if (current != results.end()) {
      complain(current->second, line);
    } else {
      for (auto& [rung, result] : results) complain(result, line);
    }
  }
  return results;
}

nlohmann::ordered_json sanitizer_evidence(const SanitizerResult& result) {
  return {{"passed", result.passed()},
          {"ran", result.ran},
          {"findings", result.findings},
          {"first", result.first}};
}

RunningSanitizers start_sanitizers(const std::vector<std::string>& arguments) {
  RunningSanitizers running;
  for (const std::string_view tool : kSanitizerTools) {
    running.push_back(std::async(std::launch::async,
                                 [tool, arguments] { return run_sanitizer(tool, arguments); }));
  }
  return running;
}

Status collect_sanitizers(RunningSanitizers running, const std::vector<std::string>& subjects,
                          const std::function<void(std::string_view tool)>& waits,
                          nlohmann::ordered_json& results) {
  Status failure;
  for (size_t t = 0; t < running.size(); ++t) {
    const std::string_view tool = kSanitizerTools[t];
    waits(tool);
    const Result<std::string> output = running[t].get();
    if (!output.ok()) {
      failure = output.status();
      continue;
    }
    const SanitizerResults found = parse_sanitizer(*output, subjects);
    for (const std::string& subject : subjects) {
      results[subject][std::string(tool)] = sanitizer_evidence(found.at(subject));
    }
  }
  return failure;
}

}  // namespace flashcore::bench
