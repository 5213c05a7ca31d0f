// The public face of merge and append.
#include "flashcore/serving.hpp"

#include "cpu/serving.hpp"
#include "plan/call.hpp"
#include "plan/plan_checks.hpp"
#include "problem/serving.hpp"
#include "problem/status.hpp"

namespace flashcore {
Status merge(const Merge& what, const MergeArguments& arguments, const PlanOptions& options,
             Stream /*stream*/) {
  const Result<MergeProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(check_cpu_call("merge", options));
  FLASHCORE_RETURN_IF_ERROR(check_pointers(what, *problem, arguments));
  return without_exceptions([&] { cpu::merge(*problem, arguments, options.threads); });
}

Status append_and_attend(const Append& what, const AppendArguments& rows, const Plan& plan,
                         const Arguments& attention, const PlanOptions& options, void* workspace,
                         size_t workspace_bytes, Stream stream) {
  const Result<AppendProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(check_cpu_call("append", options));
  if (PlanChecks::device(plan) != DeviceKind::cpu) {
    return unsupported(
        "plan: append_and_attend has no kernel for a GPU yet, wanted one of the CPU");
  }
  if (attention.k != rows.k || attention.v != rows.v) {
    return invalid("{}: pointer {} is not the cache of append, {}, wanted the same one",
                   attention.k != rows.k ? "k" : "v",
                   attention.k != rows.k ? attention.k : attention.v,
                   attention.k != rows.k ? static_cast<const void*>(rows.k) : rows.v);
  }
  FLASHCORE_RETURN_IF_ERROR(PlanChecks::of_run(plan, attention, workspace, workspace_bytes));
  FLASHCORE_RETURN_IF_ERROR(check_arguments(what, *problem, rows));
  FLASHCORE_RETURN_IF_ERROR(
      without_exceptions([&] { cpu::append(*problem, rows, options.threads); }));
  return plan.run(attention, workspace, workspace_bytes, stream);
}

Status append(const Append& what, const AppendArguments& arguments, const PlanOptions& options,
              Stream /*stream*/) {
  const Result<AppendProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(check_cpu_call("append", options));
  FLASHCORE_RETURN_IF_ERROR(check_arguments(what, *problem, arguments));
  return without_exceptions([&] { cpu::append(*problem, arguments, options.threads); });
}

}  // namespace flashcore
