#include "bench/device/profiled_call.hpp"

#include <cuda_profiler_api.h>

#include "bench/device/execution.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {

Status run_profiled(HostProblem& host, const PlanOptions& options) {
  const Result<Plan> plan = make_plan(host.problem, options);
  if (!plan.ok()) return plan.status();
  Result<Execution> execution = Execution::prepare(*plan, options.device, host);
  if (!execution.ok()) return execution.status();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  FLASHCORE_RETURN_IF_ERROR(execution->fetch());
  (void)cudaProfilerStart();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  Status status = execution->fetch();
  (void)cudaProfilerStop();
  return status;
}

}  // namespace flashcore::bench
