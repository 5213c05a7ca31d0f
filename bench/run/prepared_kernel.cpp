#include "bench/run/prepared_kernel.hpp"

#include <utility>

#include "bench/cases/fp8_problem.hpp"

namespace flashcore::bench {

Result<std::unique_ptr<PreparedKernel>> PreparedKernel::make(const std::string& kernel,
                                                             const Problem& problem, Device device,
                                                             uint64_t seed) {
  std::unique_ptr<PreparedKernel> prepared(new PreparedKernel);
  PlanOptions options;
  options.device = device;
  options.kernel = kernel;
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok()) return plan.status();
  prepared->host_ = std::make_unique<HostProblem>(allocate(problem));
  if (problem.q.dtype == DType::f8e4m3) {
    fill_fp8_inputs(*prepared->host_, seed);
  } else {
    fill_inputs(*prepared->host_, seed);
  }
  Result<Execution> execution = Execution::prepare(*plan, device, *prepared->host_);
  if (!execution.ok()) return execution.status();
  prepared->execution_ = std::make_unique<Execution>(std::move(*execution));
  return prepared;
}

}  // namespace flashcore::bench
