// The public face of merge and append.
#include "flashcore/serving.hpp"

#include <new>
#include <stdexcept>

#include "cpu/serving.hpp"
#include "plan/plan_checks.hpp"
#include "problem/serving.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

constexpr int32_t kMostThreads = 4096;

Status check_options(const char* name, const PlanOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads) {
    return invalid("threads: is {}, wanted 0 (all) to {}", options.threads, kMostThreads);
  }
  if (options.device.kind == DeviceKind::cpu && options.device.index != 0) {
    return invalid("device: CPU index is {}, wanted 0", options.device.index);
  }
  if (options.device.kind != DeviceKind::cpu) {
    return unsupported("device: {} has no kernel for a GPU yet, wanted the CPU", name);
  }
  return {};
}

template <class Run>
Status without_exceptions(const Run& run) {
  try {
    run();
    return {};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "memory: the host has none left for this run"};
  }
}

}  // namespace

Status merge(const Merge& what, const MergeArguments& arguments, const PlanOptions& options,
             Stream /*stream*/) {
  const Result<MergeProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(check_options("merge", options));
  FLASHCORE_RETURN_IF_ERROR(check_pointers(what, *problem, arguments));
  return without_exceptions([&] { cpu::merge(*problem, arguments, options.threads); });
}

Status append_and_attend(const Append& what, const AppendArguments& rows, const Plan& plan,
                         const Arguments& attention, const PlanOptions& options, void* workspace,
                         size_t workspace_bytes, Stream stream) {
  const Result<AppendProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(check_options("append", options));
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
  FLASHCORE_RETURN_IF_ERROR(check_options("append", options));
  FLASHCORE_RETURN_IF_ERROR(check_arguments(what, *problem, arguments));
  return without_exceptions([&] { cpu::append(*problem, arguments, options.threads); });
}

}  // namespace flashcore
