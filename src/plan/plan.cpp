// make_plan, explain and Plan: the public interface of the table of kernels.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "plan/call.hpp"
#include "plan/device.hpp"
#include "plan/explain_for.hpp"
#include "plan/kernel_choice.hpp"
#include "plan/kernel_names.hpp"
#include "plan/plan_checks.hpp"
#include "plan/table.hpp"
#include "plan/tuned_choice.hpp"
#include "plan/tuning_plans.hpp"
#include "problem/environment.hpp"
#include "problem/philox.hpp"
#include "problem/run_tensors.hpp"
#include "problem/status.hpp"

namespace flashcore {

namespace {

struct ForwardPass {
  ForwardProblem problem;
  PlannedKernel planned;
};

struct BackwardPass {
  BackwardProblem problem;
  PlannedBackward planned;
};

}  // namespace

struct Plan::Impl {
  Device device;
  std::string kernel;
  std::string reason;
  std::variant<ForwardPass, BackwardPass> pass;
  RunTensors tensors;
};

namespace {

constexpr std::align_val_t kWorkspaceAlignment{256};

struct WorkspaceDelete {
  void operator()(std::byte* memory) const { ::operator delete(memory, kWorkspaceAlignment); }
};
using OwnedWorkspace = std::unique_ptr<std::byte, WorkspaceDelete>;

Status check_workspace(const void* workspace, size_t bytes, size_t wanted) {
  if (workspace == nullptr || bytes < wanted) {
    return invalid("workspace: has {} bytes, wanted {}", workspace == nullptr ? 0 : bytes, wanted);
  }
  const auto alignment = static_cast<size_t>(kWorkspaceAlignment);
  if (reinterpret_cast<uintptr_t>(workspace) % alignment != 0) {
    return invalid("workspace: pointer {} is not aligned, wanted a multiple of {}", workspace,
                   alignment);
  }
  return {};
}

// FLASHCORE_GRID_LIMIT: plan as if the GPU had this many SMs, for experiments. Persistent kernels
// then start only as many blocks as such a GPU would hold.
Status limit_grid(DeviceInfo& gpu) {
  const char* const text = read_variable("FLASHCORE_GRID_LIMIT");
  if (text == nullptr || *text == '\0') return {};
  const std::string_view given = text;
  int32_t limit = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), limit);
  if (error != std::errc() || end != given.data() + given.size() || limit < 1) {
    return invalid("FLASHCORE_GRID_LIMIT: is '{}', wanted a number of SMs from 1", given);
  }
  gpu.multiprocessors = std::min(gpu.multiprocessors, limit);
  return {};
}

Result<PlanContext> context_on(const Result<DeviceInfo>& device, const PlanOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    return invalid("threads: is {}, wanted 0 (all) to {}", options.threads, kMostThreads);
  }
  PlanContext context;
  context.threads = options.threads;
  context.batch_invariant = options.batch_invariant;
  context.early_start = options.early_start;
  context.deterministic = options.deterministic;
  if (!device.ok()) return device.status();
  context.device = *device;
  if (context.device.device.kind == DeviceKind::cpu) {
    if (context.threads == 0) context.threads = context.device.multiprocessors;
  } else {
    FLASHCORE_RETURN_IF_ERROR(limit_grid(context.device));
  }
  return context;
}

}  // namespace

Result<PlanContext> resolve_context(const PlanOptions& options) {
  return context_on(find_device(options.device), options);
}

namespace {

// The environment variable forces a kernel only if the program leaves the choice open. A program
// that names a kernel (the gates name the reference) gets that one. One variable serves the forward
// and the backward pass: a kernel that has only the other pass leaves the choice open.
template <class AnyProblem>
std::string forced_kernel(const PlanOptions& options, const AnyProblem& problem) {
  if (!options.kernel.empty()) return options.kernel;
  const char* const forced = read_variable("FLASHCORE_KERNEL");
  if (forced == nullptr) return "";
  const std::string name = asked_name(forced).name;
  bool is_known = false;
  for (const Variant& variant : variants()) {
    if (variant.name != name && kernel_part(variant.name) != name) continue;
    if (computes(variant, problem)) return forced;
    is_known = true;
  }
  return is_known ? "" : forced;
}

Result<ForwardPass> pass_of(const Variant& variant, const ForwardProblem& problem,
                            const PlanContext& context) {
  Result<PlannedKernel> planned = variant.plan(problem, context);
  if (!planned.ok()) return planned.status();
  return ForwardPass{problem, std::move(*planned)};
}

Result<BackwardPass> pass_of(const Variant& variant, const BackwardProblem& problem,
                             const PlanContext& context) {
  Result<PlannedBackward> planned = variant.backward.plan(problem, context);
  if (!planned.ok()) return planned.status();
  return BackwardPass{problem, std::move(*planned)};
}

PlanContext in_config(PlanContext context, std::string config) {
  context.config = std::move(config);
  return context;
}

using Made = Result<std::shared_ptr<Plan::Impl>>;

template <class AnyProblem>
Made plan_with(const Variant& variant, const AnyProblem& problem, const PlanContext& context,
               std::string reason) {
  auto pass = pass_of(variant, problem, context);
  if (!pass.ok()) return pass.status();
  auto impl = std::make_shared<Plan::Impl>();
  impl->device = context.device.device;
  impl->kernel = variant.name;
  impl->reason = std::move(reason);
  if (const std::string note = inner_note(variant, problem, context); !note.empty()) {
    impl->reason += "; " + note;
  }
  impl->pass = std::move(*pass);
  return impl;
}

// The names of a device's kernels.
std::string names_on(DeviceKind device) {
  std::string names;
  for (const Kernel& kernel : kernels()) {
    if (!runs_on(kernel.variants.front(), device)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", kernel.name);
  }
  return names;
}

template <class AnyProblem>
Made plan_forced(const std::string& text, const AnyProblem& problem, const PlanContext& context) {
  const auto [variant, config] = asked_for(text, problem, context);
  if (variant == nullptr) {
    return invalid("kernel: is '{}', wanted one of this device's: {}", asked_name(text).name,
                   names_on(context.device.device.kind));
  }
  const std::string refusal = refusal_of(*variant, problem, context);
  if (!refusal.empty()) return unsupported("kernel {}: {}", variant->name, refusal);
  if (config.empty()) return plan_with(*variant, problem, context, "it was asked for by name");
  const std::string objection = refuse_config(*variant, problem, context, config);
  if (!objection.empty()) return invalid("kernel {}: {}", variant->name, objection);
  return plan_with(*variant, problem, in_config(context, config),
                   fmt::format("it was asked for by name, with {}", config));
}

template <class AnyProblem>
Made plan_resolved(const AnyProblem& problem, const PlanOptions& options) {
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  const std::string forced = forced_kernel(options, problem);
  if (!forced.empty()) return plan_forced(forced, problem, *context);

  KernelChoice choice = choose_kernel(problem, *context);
  if (choice.kernel == nullptr) {
    return unsupported("problem: no kernel of this device computes it ({})", choice.reason);
  }
  return plan_with(*choice.kernel, problem, in_config(*context, std::move(choice.config)),
                   std::move(choice.reason));
}

// `what` is a problem, or a problem and its gradients.
template <class... What>
Result<Plan> plan_of(const PlanOptions& options, const What&... what) {
  const auto resolved = resolve(what...);
  if (!resolved.ok()) return resolved.status();
  Made plan = plan_resolved(*resolved, options);
  if (!plan.ok()) return plan.status();
  (*plan)->tensors = RunTensors(what...);
  return Plan(std::move(*plan));
}

template <class AnyProblem>
Result<std::vector<std::string>> candidates_resolved(const Result<AnyProblem>& resolved,
                                                     const PlanOptions& options) {
  if (!resolved.ok()) return resolved.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  return candidates_of(*resolved, *context);
}

template <class AnyProblem>
Result<TuningKey> key_resolved(const Result<AnyProblem>& resolved, const PlanOptions& options) {
  if (!resolved.ok()) return resolved.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  return TuningKey{.text = tuning::tuned_key(*resolved, *context), .device = context->device};
}

template <class AnyProblem>
Result<std::vector<KernelVerdict>> explain_resolved(const Result<AnyProblem>& resolved,
                                                    const PlanOptions& options) {
  if (!resolved.ok()) return resolved.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  return choose_kernel(*resolved, *context).verdicts;
}

template <class AnyProblem>
Result<ExplainedFor> explain_on(const DeviceInfo& gpu, const Result<AnyProblem>& resolved,
                                const PlanOptions& options) {
  if (!resolved.ok()) return resolved.status();
  const Result<PlanContext> context = context_on(gpu, options);
  if (!context.ok()) return context.status();
  KernelChoice choice = choose_kernel(*resolved, *context);
  if (choice.verdicts.empty()) {
    return unsupported("device: is {}, wanted a build with the kernels of GPUs", gpu.name);
  }
  ExplainedFor explained{.verdicts = std::move(choice.verdicts),
                         .kernel = choice.kernel == nullptr ? "" : choice.kernel->name,
                         .reason = std::move(choice.reason)};
  const std::string forced = forced_kernel(options, *resolved);
  if (forced.empty()) return explained;
  const Variant* const asked = asked_for(forced, *resolved, *context).variant;
  if (asked == nullptr) {
    return invalid("kernel: is '{}', wanted a kernel for {}", asked_name(forced).name, gpu.name);
  }
  const std::string refusal = refusal_of(*asked, *resolved, *context);
  explained.kernel = refusal.empty() ? asked->name : "";
  explained.reason = refusal.empty() ? "it was asked for by name"
                                     : fmt::format("kernel {}: {}", asked->name, refusal);
  return explained;
}

const ForwardProblem& forward_of(const ForwardProblem& problem) { return problem; }
const ForwardProblem& forward_of(const BackwardProblem& problem) { return problem.forward; }
const Arguments& forward_of(const Arguments& arguments) { return arguments; }
const Arguments& forward_of(const BackwardArguments& arguments) { return arguments.forward; }

bool brings_its_own(DeviceKind device, const void* workspace, size_t workspace_bytes) {
  return device == DeviceKind::cpu && workspace == nullptr && workspace_bytes == 0;
}

template <class Pass, class AnyArguments>
Status check_data(const Plan::Impl& plan, const Pass& pass, const AnyArguments& arguments) {
  FLASHCORE_RETURN_IF_ERROR(plan.tensors.check(arguments));
  if (plan.device.kind == DeviceKind::cpu) {
    FLASHCORE_RETURN_IF_ERROR(check_lengths(forward_of(pass.problem), forward_of(arguments)));
    FLASHCORE_RETURN_IF_ERROR(check_o_scale(forward_of(pass.problem), forward_of(arguments)));
  }
  return {};
}

template <class Pass, class AnyArguments>
Status run_pass(const Plan::Impl& plan, const Pass& pass, const AnyArguments& arguments,
                void* workspace, size_t workspace_bytes, Stream stream) {
  FLASHCORE_RETURN_IF_ERROR(check_data(plan, pass, arguments));
  const DeviceKind device = plan.device.kind;
  const size_t wanted = pass.planned.workspace_bytes;
  try {
    OwnedWorkspace owned;  // on the CPU, if the caller passed none
    if (wanted == 0) {
      workspace_bytes = 0;
    } else if (brings_its_own(device, workspace, workspace_bytes)) {
      owned.reset(
          static_cast<std::byte*>(::operator new(wanted, kWorkspaceAlignment, std::nothrow)));
      if (owned == nullptr) {
        return {StatusCode::out_of_memory,
                fmt::format("workspace: the host has no {} bytes for it", wanted)};
      }
      workspace = owned.get();
      workspace_bytes = wanted;
    } else {
      FLASHCORE_RETURN_IF_ERROR(check_workspace(workspace, workspace_bytes, wanted));
    }
    if (device == DeviceKind::cpu) {
      FLASHCORE_RETURN_IF_ERROR(check_pages(forward_of(pass.problem), forward_of(arguments)));
    }
    return pass.planned.run(arguments, {static_cast<std::byte*>(workspace), workspace_bytes},
                            stream);
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "memory: the host has none left for this run"};
  } catch (const std::length_error&) {
    return {StatusCode::out_of_memory, "memory: the run needs more than an object can hold"};
  }
}

}  // namespace

Result<Plan> make_plan(const Problem& problem, const PlanOptions& options) {
  return plan_of(options, problem);
}

Result<Plan> make_backward_plan(const Problem& problem, const Gradients& gradients,
                                const PlanOptions& options) {
  return plan_of(options, problem, gradients);
}

Result<std::vector<KernelVerdict>> explain(const Problem& problem, const PlanOptions& options) {
  return explain_resolved(resolve(problem), options);
}

Result<std::vector<KernelVerdict>> explain_backward(const Problem& problem,
                                                    const Gradients& gradients,
                                                    const PlanOptions& options) {
  return explain_resolved(resolve(problem, gradients), options);
}

Result<ExplainedFor> explain_for(const DeviceInfo& gpu, const Problem& problem,
                                 const PlanOptions& options) {
  return explain_on(gpu, resolve(problem), options);
}

Result<ExplainedFor> explain_for(const DeviceInfo& gpu, const Problem& problem,
                                 const Gradients& gradients, const PlanOptions& options) {
  return explain_on(gpu, resolve(problem, gradients), options);
}

Result<std::vector<std::string>> candidates_of(const Problem& problem, const PlanOptions& options) {
  return candidates_resolved(resolve(problem), options);
}

Result<std::vector<std::string>> candidates_of(const Problem& problem, const Gradients& gradients,
                                               const PlanOptions& options) {
  return candidates_resolved(resolve(problem, gradients), options);
}

Result<TuningKey> tuning_key(const Problem& problem, const PlanOptions& options) {
  return key_resolved(resolve(problem), options);
}

Result<TuningKey> tuning_key(const Problem& problem, const Gradients& gradients,
                             const PlanOptions& options) {
  return key_resolved(resolve(problem, gradients), options);
}

Plan::Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::string_view Plan::kernel() const { return impl_->kernel; }
std::string_view Plan::reason() const { return impl_->reason; }

size_t Plan::workspace_bytes() const {
  return std::visit([](const auto& pass) { return pass.planned.workspace_bytes; }, impl_->pass);
}

Status Plan::run(const Arguments& arguments, void* workspace, size_t workspace_bytes,
                 Stream stream) const {
  const auto* const pass = std::get_if<ForwardPass>(&impl_->pass);
  if (pass == nullptr) return invalid("plan: is for a backward pass, wanted BackwardArguments");
  return run_pass(*impl_, *pass, arguments, workspace, workspace_bytes, stream);
}

Status Plan::run(const BackwardArguments& arguments, void* workspace, size_t workspace_bytes,
                 Stream stream) const {
  const auto* const pass = std::get_if<BackwardPass>(&impl_->pass);
  if (pass == nullptr) return invalid("plan: is for a forward pass, wanted Arguments");
  return run_pass(*impl_, *pass, arguments, workspace, workspace_bytes, stream);
}

Status PlanChecks::of_run(const Plan& plan, const Arguments& arguments, const void* workspace,
                          size_t workspace_bytes) {
  const auto* const pass = std::get_if<ForwardPass>(&plan.impl_->pass);
  if (pass == nullptr) return invalid("plan: is for a backward pass, wanted a plan for attention");
  const DeviceKind device = plan.impl_->device.kind;
  FLASHCORE_RETURN_IF_ERROR(check_data(*plan.impl_, *pass, arguments));
  const size_t wanted = pass->planned.workspace_bytes;
  if (wanted > 0 && !brings_its_own(device, workspace, workspace_bytes)) {
    FLASHCORE_RETURN_IF_ERROR(check_workspace(workspace, workspace_bytes, wanted));
  }
  const bool may_clamp = pass->problem.page_status.present;
  if (device != DeviceKind::cpu || may_clamp) return {};
  return check_pages(pass->problem, arguments);
}

Device PlanChecks::device(const Plan& plan) { return plan.impl_->device; }

bool dropout_keeps(uint64_t seed, uint64_t offset, float dropout_p, int64_t batch, int64_t head,
                   int64_t query, int64_t key) {
  for (const int64_t index : {batch, head, query, key}) {
    if (index < 0 || index > std::numeric_limits<int32_t>::max()) return false;
  }
  const PhiloxBlock words = dropout_words(dropout_key(seed, offset), static_cast<uint32_t>(batch),
                                          static_cast<uint32_t>(head), static_cast<uint32_t>(query),
                                          static_cast<uint32_t>(key / 4));
  return words[static_cast<size_t>(key % 4)] >= dropout_threshold(dropout_p);
}

}  // namespace flashcore
