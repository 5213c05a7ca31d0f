#include "bench/verify/kernel.hpp"

#include <cstdio>
#include <vector>

#include "bench/device/execution.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/text/terminal.hpp"
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

Verdict judge_kernel(HostProblem& host, const Reference& reference, const PlanOptions& options,
                     const std::string& kernel) {
  Verdict verdict;
  Status status = run_kernel(host, options, kernel);
  if (status.ok()) {
    verdict = judge(host, reference);
    const std::vector<std::byte> first = outputs(host);
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

Status run_marked(HostProblem& host, const PlanOptions& options, const std::string& kernel) {
  print(sanitizer_mark(kernel, true));
  Status status = run_kernel(host, options, kernel);
  print(status.ok() ? sanitizer_mark(kernel, false) : "========= flashcore: " + status.message());
  return status;
}

}  // namespace flashcore::bench
