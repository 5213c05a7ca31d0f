// GPU versions of calls without a plan: already checked, asynchronous in `stream`. Defined
// twice, like cuda_kernels.hpp.
#pragma once

#include "flashcore/flashcore.hpp"
#include "problem/quantize.hpp"
#include "problem/serving.hpp"
#include "problem/transpose_v.hpp"

namespace flashcore {

Status run_on_gpu(const MergeProblem& problem, const MergeArguments& arguments,
                  const DeviceInfo& device, Stream stream);
Status run_on_gpu(const AppendProblem& problem, const AppendArguments& arguments,
                  const DeviceInfo& device, Stream stream);
Status run_on_gpu(const QuantizeProblem& problem, const QuantizeArguments& arguments,
                  const DeviceInfo& device, Stream stream);
Status run_on_gpu(const TransposeProblem& problem, const void* v, void* v_out,
                  const DeviceInfo& device, Stream stream);

}  // namespace flashcore
