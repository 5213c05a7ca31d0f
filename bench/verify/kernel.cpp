#include "bench/verify/kernel.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/device/execution.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/process/forked_call.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/text/terminal.hpp"
#include "plan/device.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

std::vector<std::byte> outputs(HostProblem& host) {
  std::vector<std::byte> bytes;
  for (auto& [name, tensor] : host.tensors) {
    if (!is_output(name)) continue;
    const auto memory = tensor.memory();
    bytes.insert(bytes.end(), memory.begin(), memory.end());
  }
  return bytes;
}

// At once: the next line may be the last of this process.
void print(const std::string& line) {
  write_text(stdout, line + "\n");
  std::fflush(stdout);
}

}  // namespace

Status run_kernel(HostProblem& host, PlanOptions options, const std::string& kernel) {
  options.kernel = kernel;
  poison_outputs(host);
  const Result<Plan> plan = make_plan(host.problem, options);
  if (!plan.ok()) return plan.status();
  Result<Execution> execution = Execution::prepare(*plan, options.device, host);
  if (!execution.ok()) return execution.status();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  return execution->fetch();
}

namespace {

constexpr uint64_t kOtherOrder = 1'000'003;  // far from the seeds of other problems
constexpr double kMostSeconds = 300;         // a simulated run that takes longer does not end

Verdict judge_two_runs(HostProblem& host, const Reference& reference, const PlanOptions& options,
                       const std::string& kernel) {
  Verdict verdict;
  Status status = run_kernel(host, options, kernel);
  if (status.ok()) {
    verdict = judge(host, reference);
    const std::vector<std::byte> first = outputs(host);
    if (const std::optional<uint64_t> order = simulator_seed()) {
      seed_simulator(*order + kOtherOrder);
    }
    status = run_kernel(host, options, kernel);
    verdict.repeats = !status.ok() || outputs(host) == first;
    if (verdict.passed && !verdict.repeats) {
      verdict.passed = false;
      verdict.failure = "a second run gives other bits";
    }
  }
  if (status.ok()) return verdict;
  verdict.passed = false;
  verdict.failure = status.message();
  return verdict;
}

// A kernel that is wrong may write anywhere, or never end.
Verdict judge_in_copy(HostProblem& host, const Reference& reference, const PlanOptions& options,
                      const std::string& kernel, uint64_t seed) {
  const Result<std::string> told = call_in_copy(
      [&] {
        seed_simulator(simulator_seed().value_or(0) + seed);
        const Verdict verdict = judge_two_runs(host, reference, options, kernel);
        return nlohmann::json({{"passed", verdict.passed},
                               {"failure", verdict.failure},
                               {"repeats", verdict.repeats},
                               {"max_scaled_error", verdict.max_scaled_error},
                               {"relative_error", verdict.relative_error},
                               {"lse_error", verdict.lse_error}})
            .dump();
      },
      kMostSeconds);
  Verdict verdict;
  if (!told.ok()) {
    verdict.failure = told.status().message();
    return verdict;
  }
  const nlohmann::json all = nlohmann::json::parse(*told);
  // JSON has no infinity: such an error arrives as null.
  const auto number = [&](const char* name) {
    return all[name].is_number() ? all[name].get<double>()
                                 : std::numeric_limits<double>::infinity();
  };
  verdict.passed = all["passed"];
  verdict.failure = all["failure"];
  verdict.repeats = all["repeats"];
  verdict.max_scaled_error = number("max_scaled_error");
  verdict.relative_error = number("relative_error");
  verdict.lse_error = number("lse_error");
  return verdict;
}

}  // namespace

Verdict judge_kernel(HostProblem& host, const Reference& reference, const PlanOptions& options,
                     const std::string& kernel, uint64_t seed) {
  if (options.device.kind == DeviceKind::sim) {
    return judge_in_copy(host, reference, options, kernel, seed);
  }
  return judge_two_runs(host, reference, options, kernel);
}

std::string repeat_device(Device device) {
  if (device.kind == DeviceKind::cpu) return {};
  std::string text = " --device " + to_text(device);
  const uint64_t seed = simulator_seed().value_or(0);
  if (device.kind == DeviceKind::sim && seed > 0) text += fmt::format(" --sim-seed {}", seed);
  return text;
}

Status run_marked(HostProblem& host, const PlanOptions& options, const std::string& kernel) {
  print(sanitizer_mark(kernel, true));
  Status status = run_kernel(host, options, kernel);
  print(status.ok() ? sanitizer_mark(kernel, false) : "========= flashcore: " + status.message());
  return status;
}

}  // namespace flashcore::bench
