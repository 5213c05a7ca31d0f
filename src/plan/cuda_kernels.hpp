// The CUDA part of the table of kernels, best first, and quantisation. Two definitions: cuda_kernels.cpp, and
// device_no_cuda.cpp for builds without CUDA, where there are none.
#pragma once

#include <vector>

#include "kernel/kernel.hpp"
#include "problem/quantize.hpp"

namespace flashcore {

std::vector<Kernel> cuda_kernels();

// Of a checked run; asynchronous in `stream`.
Status quantize_on_gpu(const QuantizeProblem& problem, const QuantizeArguments& args,
                       const DeviceInfo& device, Stream stream);

}  // namespace flashcore
