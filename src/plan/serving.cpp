// The public interface of merge and append.
#include "flashcore/serving.hpp"

#include "cpu/serving.hpp"
#include "plan/call.hpp"
#include "plan/cuda_calls.hpp"
#include "plan/device.hpp"
#include "plan/plan_checks.hpp"
#include "problem/operands.hpp"
#include "problem/serving.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

bool is_cpu(const DeviceInfo& device) { return device.device.kind == DeviceKind::cpu; }

// The checks of a run.
Status check(const Append& what, const AppendProblem& problem, const AppendArguments& arguments,
             const DeviceInfo& device) {
  FLASHCORE_RETURN_IF_ERROR(check_memory(what, arguments));
  return is_cpu(device) ? check_places(problem, arguments) : Status();
}

Status run(const AppendProblem& problem, const AppendArguments& arguments,
           const PlanOptions& options, const DeviceInfo& device, Stream stream) {
  if (!is_cpu(device)) return run_on_gpu(problem, arguments, device, stream);
  return without_exceptions([&] { cpu::append(problem, arguments, options.threads); });
}

}  // namespace

Status merge(const Merge& what, const MergeArguments& arguments, const PlanOptions& options,
             Stream stream) {
  const Result<MergeProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  FLASHCORE_RETURN_IF_ERROR(check_memory(what, arguments));
  if (!is_cpu(context->device)) return run_on_gpu(*problem, arguments, context->device, stream);
  return without_exceptions([&] { cpu::merge(*problem, arguments, options.threads); });
}

Status append_and_attend(const Append& what, const AppendArguments& rows, const Plan& plan,
                         const Arguments& attention, const PlanOptions& options, void* workspace,
                         size_t workspace_bytes, Stream stream) {
  const Result<AppendProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  const Device of_plan = PlanChecks::device(plan);
  if (of_plan.kind != options.device.kind || of_plan.index != options.device.index) {
    return invalid("plan: is for {}:{}, wanted the device of append, {}:{}", name_of(of_plan.kind),
                   of_plan.index, name_of(options.device.kind), options.device.index);
  }
  if (attention.k != rows.k || attention.v != rows.v) {
    return invalid("{}: pointer {} is not the cache of append, {}, wanted the same one",
                   attention.k != rows.k ? "k" : "v",
                   attention.k != rows.k ? attention.k : attention.v,
                   attention.k != rows.k ? static_cast<const void*>(rows.k) : rows.v);
  }
  FLASHCORE_RETURN_IF_ERROR(PlanChecks::of_run(plan, attention, workspace, workspace_bytes));
  FLASHCORE_RETURN_IF_ERROR(check(what, *problem, rows, context->device));
  FLASHCORE_RETURN_IF_ERROR(run(*problem, rows, options, context->device, stream));
  return plan.run(attention, workspace, workspace_bytes, stream);
}

Status append(const Append& what, const AppendArguments& arguments, const PlanOptions& options,
              Stream stream) {
  const Result<AppendProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  FLASHCORE_RETURN_IF_ERROR(check(what, *problem, arguments, context->device));
  return run(*problem, arguments, options, context->device, stream);
}

}  // namespace flashcore
