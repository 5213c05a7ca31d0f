// The public face of merge and append.
#include "flashcore/serving.hpp"

#include <new>
#include <stdexcept>

#include "cpu/serving.hpp"
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

Status append(const Append& what, const AppendArguments& arguments, const PlanOptions& options,
              Stream /*stream*/) {
  const Result<AppendProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(check_options("append", options));
  FLASHCORE_RETURN_IF_ERROR(check_arguments(*problem, arguments));
  return without_exceptions([&] { cpu::append(*problem, arguments, options.threads); });
}

}  // namespace flashcore
