#include "bench/verify/kernel.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "bench/device/execution.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/process/forked_call.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/text/terminal.hpp"
#include "bench/time/launched.hpp"
#include "plan/device.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

bool is_output_of(const HostProblem& /*host*/, std::string_view name) { return is_output(name); }
bool is_output_of(const HostBackward& /*host*/, std::string_view name) {
  return is_gradient_output(name);
}

template <class Host>
std::vector<std::byte> outputs(Host& host) {
  std::vector<std::byte> bytes;
  for (auto& [name, tensor] : host.tensors) {
    if (!is_output_of(host, name)) continue;
    const auto memory = tensor.memory();
    bytes.insert(bytes.end(), memory.begin(), memory.end());
  }
  return bytes;
}

// Flushed at once: the next line may be the last of this process.
void print(const std::string& line) {
  write_text(stdout, line + "\n");
  std::fflush(stdout);
}

Result<Plan> plan_of(const HostProblem& host, const PlanOptions& options) {
  return make_plan(host.problem, options);
}
Result<Plan> plan_of(const HostBackward& host, const PlanOptions& options) {
  return make_backward_plan(host.forward.problem, host.gradients, options);
}

// Trials share a GPU, but a capture must be the only user.
std::shared_mutex& gpu_calls() {
  static std::shared_mutex calls;
  return calls;
}

// `launched` gets the names of the device functions.
template <class Host>
Status run_poisoned(Host& host, PlanOptions options, const std::string& kernel,
                    std::set<std::string>* launched) {
  options.kernel = kernel;
  poison_outputs(host);
  const Result<Plan> plan = plan_of(host, options);
  if (!plan.ok()) return plan.status();
  std::shared_lock together(gpu_calls());
  Result<Execution> execution = Execution::prepare(*plan, options.device, host);
  if (!execution.ok()) return execution.status();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  if (launched != nullptr && options.device.kind == DeviceKind::cuda) {
    together.unlock();
    const std::unique_lock alone(gpu_calls());
    Result<std::set<std::string>> names =
        launched_by([&](Stream stream) { return execution->run(stream); }, options.device);
    if (!names.ok()) return names.status();
    *launched = std::move(*names);
  }
  if (!together.owns_lock()) together.lock();
  return execution->fetch();
}

constexpr uint64_t kOtherOrder = 1'000'003;  // far from the seeds of other problems
constexpr double kMostSeconds = 300;         // a simulated run over this has hung

template <class Host, class AnyReference>
Verdict judge_two_runs(Host& host, const AnyReference& reference, const PlanOptions& options,
                       const std::string& kernel) {
  Verdict verdict;
  std::set<std::string> launched;
  Status status = run_poisoned(host, options, kernel, &launched);
  if (status.ok()) {
    verdict = judge(host, reference);
    verdict.launched = std::move(launched);
    const std::vector<std::byte> first = outputs(host);
    if (const std::optional<uint64_t> order = simulator_seed()) {
      seed_simulator(*order + kOtherOrder);
    }
    status = run_poisoned(host, options, kernel, nullptr);
    verdict.repeats = !status.ok() || !options.deterministic || outputs(host) == first;
    if (!verdict.repeats) verdict.note("a second run gives other bits");
  }
  if (status.ok()) return verdict;
  verdict.passed = false;
  verdict.failure = status.message();
  return verdict;
}

// A wrong kernel may write anywhere, or never end.
template <class Host, class AnyReference>
Verdict judge_in_copy(Host& host, const AnyReference& reference, const PlanOptions& options,
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
  // JSON has no infinity: such an error is stored as null.
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

template <class Host, class AnyReference>
KernelJudge judge_on(Host host, AnyReference reference, const PlanOptions& options, uint64_t seed) {
  return [host = std::make_shared<Host>(std::move(host)), reference = std::move(reference), options,
          seed](const std::string& kernel) {
    return options.device.kind == DeviceKind::sim
               ? judge_in_copy(*host, reference, options, kernel, seed)
               : judge_two_runs(*host, reference, options, kernel);
  };
}

template <class Host>
Status run_between_marks(Host& host, const PlanOptions& options, const std::string& kernel) {
  print(sanitizer_mark(kernel, true));
  Status status = run_poisoned(host, options, kernel, nullptr);
  print(status.ok() ? sanitizer_mark(kernel, false) : "========= flashcore: " + status.message());
  return status;
}

}  // namespace

Status run_kernel(HostProblem& host, const PlanOptions& options, const std::string& kernel,
                  std::set<std::string>* launched) {
  return run_poisoned(host, options, kernel, launched);
}

Result<KernelJudge> kernel_judge(HostProblem host,
                                 const std::function<Result<Reference>(HostProblem&)>& reference,
                                 const PlanOptions& options, uint64_t seed) {
  Result<Reference> right = reference(host);
  if (!right.ok()) return right.status();
  return judge_on(std::move(host), std::move(*right), options, seed);
}

Result<KernelJudge> kernel_judge(Result<HostBackward> host, bool is_random,
                                 const PlanOptions& options, uint64_t seed) {
  if (!host.ok()) return host.status();
  Result<GradientReferences> right = compute_reference(*host, options.threads, is_random);
  if (!right.ok()) return right.status();
  return judge_on(std::move(*host), std::move(*right), options, seed);
}

std::string repeat_device(Device device) {
  if (device.kind == DeviceKind::cpu) return {};
  std::string text = " --device " + to_text(device);
  const uint64_t seed = simulator_seed().value_or(0);
  if (device.kind == DeviceKind::sim && seed > 0) text += fmt::format(" --sim-seed {}", seed);
  return text;
}

Status run_marked(HostProblem& host, const PlanOptions& options, const std::string& kernel) {
  return run_between_marks(host, options, kernel);
}

Status run_marked(HostBackward& host, const PlanOptions& options, const std::string& kernel) {
  return run_between_marks(host, options, kernel);
}

}  // namespace flashcore::bench
