#include "cli/verify_kernel.hpp"

#include <algorithm>
#include <vector>

#include "bench/device/execution.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

std::vector<std::byte> outputs(bench::HostProblem& host) {
  std::vector<std::byte> bytes;
  for (auto& [name, tensor] : host.tensors) {
    if (!bench::is_output(name)) continue;
    const auto memory = tensor.memory();
    bytes.insert(bytes.end(), memory.begin(), memory.end());
  }
  return bytes;
}

}  // namespace

void Tally::refuse(const std::string& sentence) {
  ++refused;
  if (refusal.empty()) refusal = sentence;
}

void Tally::add(const bench::Verdict& verdict, const std::string& where) {
  ++(verdict.passed ? passed : failed);
  if (!verdict.passed && failure.empty()) failure = where + ": " + verdict.failure;
  max_scaled_error = std::max(max_scaled_error, verdict.max_scaled_error);
  relative_error = std::max(relative_error, verdict.relative_error);
  lse_error = std::max(lse_error, verdict.lse_error);
}

std::string Tally::mark(const Session& session) const {
  if (failed > 0) return session.styled("FAILED", bench::Tone::bad);
  return passed > 0 ? session.styled("passed", bench::Tone::good) : "refused";
}

Status run_kernel(bench::HostProblem& host, PlanOptions options, const std::string& kernel) {
  options.kernel = kernel;
  bench::poison_outputs(host);
  const Result<Plan> plan = make_plan(host.problem, options);
  if (!plan.ok()) return plan.status();
  Result<bench::Execution> execution = bench::Execution::prepare(*plan, options.device, host);
  if (!execution.ok()) return execution.status();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  return execution->fetch();
}

bench::Verdict judge_kernel(bench::HostProblem& host, const bench::Reference& reference,
                            const PlanOptions& options, const std::string& kernel) {
  bench::Verdict verdict;
  Status status = run_kernel(host, options, kernel);
  if (status.ok()) {
    verdict = bench::judge(host, reference);
    const std::vector<std::byte> first = outputs(host);
    status = run_kernel(host, options, kernel);
    if (status.ok() && verdict.passed && outputs(host) != first) {
      verdict.passed = false;
      verdict.failure = "a second run gives different bits";
    }
  }
  if (status.ok()) return verdict;
  verdict.passed = false;
  verdict.failure = status.message();
  return verdict;
}

}  // namespace flashcore::cli
