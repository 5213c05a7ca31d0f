#include "plan/cuda_calls.hpp"

#include "cuda/convert/append/run.hpp"
#include "cuda/convert/merge/run.hpp"
#include "cuda/convert/quantize/plan.hpp"
#include "cuda/convert/transpose_v/run.hpp"

namespace flashcore {

Status run_on_gpu(const MergeProblem& problem, const MergeArguments& arguments,
                  const DeviceInfo& device, Stream stream) {
  return cuda::convert::merge::run(problem, arguments, device, stream);
}

Status run_on_gpu(const AppendProblem& problem, const AppendArguments& arguments,
                  const DeviceInfo& device, Stream stream) {
  return cuda::convert::append::run(problem, arguments, device, stream);
}

Status run_on_gpu(const QuantizeProblem& problem, const QuantizeArguments& arguments,
                  const DeviceInfo& device, Stream stream) {
  return cuda::convert::quantize::run(problem, arguments, device, stream);
}

Status run_on_gpu(const TransposeProblem& problem, const void* v, void* v_out,
                  const DeviceInfo& device, Stream stream) {
  return cuda::convert::transpose_v::run(problem, v, v_out, device, stream);
}

}  // namespace flashcore
