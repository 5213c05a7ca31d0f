#include "evolve/evaluate/inspect.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/process/child_process.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/report/diagnosis.hpp"
#include "bench/text/terminal.hpp"
#include "evolve/evaluate/check_object.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

constexpr bench::Limits kLimits = {.seconds = 120, .most_bytes = 8 << 20};

Result<std::string> under(std::vector<std::string> words, const CallShape& s,
                          const Program& program, const Compiled& compiled, const Tools& tools) {
  if (!bench::on_path(words.front())) {
    return unsupported("{}: is not on PATH, wanted NVIDIA's tools", words.front());
  }
  words.insert(words.end(), {tools.gpu_runner, "once"});
  for (const int64_t number :
       {s.batch, s.heads_q, s.heads_kv, s.seqlen_q, s.seqlen_kv, s.head_dim}) {
    words.push_back(std::to_string(number));
  }
  words.push_back(std::to_string(s.scale));
  const Result<bench::ChildOutput> said =
      bench::run_child(words, {.errors = true}, load_text(compiled.object(), program), kLimits);
  if (!said.ok()) return said.status();
  if (said->timed_out) return invalid("{}: took more than {} s", words.front(), kLimits.seconds);
  return said->text;
}

}  // namespace

nlohmann::ordered_json profiled(const Task& task, const Program& program, const Compiled& compiled,
                                const Tools& tools) {
  const Result<std::string> said =
      under({"ncu", "--csv", "--print-units", "base", "--clock-control", "none", "--metrics",
             fmt::format("{}", fmt::join(bench::profiler_metrics(), ","))},
            task.shapes.front(), program, compiled, tools);
  if (!said.ok()) return {{"missing", said.status().message()}};
  const auto launches = bench::parse_profiler_csv(*said);
  if (!launches.ok()) return {{"missing", bench::printable(launches.status().message())}};
  if (launches->empty()) return {{"missing", "ncu counted no launch"}};
  return bench::diagnosis_json(bench::diagnose(launches->front()));
}

Result<Finding> sanitized(const Task& task, const Program& program, const Compiled& compiled,
                          const Tools& tools) {
  CallShape shape = task.shapes.front();
  const int64_t group = shape.heads_q / shape.heads_kv;
  shape.batch = 1, shape.heads_kv = 2, shape.heads_q = 2 * group;
  shape.seqlen_q = 70, shape.seqlen_kv = 150;
  for (const std::string_view tool : bench::kSanitizerTools) {
    const Result<std::string> said =
        under({"compute-sanitizer", "--tool", std::string(tool), "--print-limit", "10"}, shape,
              program, compiled, tools);
    if (!said.ok()) return said.status();
    const std::string marked = bench::sanitizer_mark("once", true) + "\n" + *said + "\n" +
                               bench::sanitizer_mark("once", false) + "\n";
    const bench::SanitizerResult result = bench::parse_sanitizer(marked, {"once"})["once"];
    if (result.passed()) continue;
    return Finding{Outcome::correctness,
                   fmt::format("{}: {}", tool,
                               result.first.empty() ? "it did not end"
                                                    : bench::printable(result.first.front()))};
  }
  return Finding{};
}

}  // namespace flashcore::evolve
