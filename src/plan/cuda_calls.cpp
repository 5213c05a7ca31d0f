#include "plan/cuda_calls.hpp"

#include "cuda/quantize/rows/plan.hpp"
#include "cuda/serving/append/run.hpp"
#include "cuda/serving/merge/run.hpp"
#include "cuda/serving/transpose_v/run.hpp"

namespace flashcore {

Status run_on_gpu(const MergeProblem& problem, const MergeArguments& arguments,
                  const DeviceInfo& device, Stream stream) {
  return cuda::serving::merge::run(problem, arguments, device, stream);
}

Status run_on_gpu(const AppendProblem& problem, const AppendArguments& arguments,
                  const DeviceInfo& device, Stream stream) {
  return cuda::serving::append::run(problem, arguments, device, stream);
}

Status run_on_gpu(const QuantizeProblem& problem, const QuantizeArguments& arguments,
                  const DeviceInfo& device, Stream stream) {
  return cuda::quantize::rows::run(problem, arguments, device, stream);
}

Status run_on_gpu(const TransposeProblem& problem, const void* v, void* v_out,
                  const DeviceInfo& device, Stream stream) {
  return cuda::serving::transpose_v::run(problem, v, v_out, device, stream);
}

}  // namespace flashcore
