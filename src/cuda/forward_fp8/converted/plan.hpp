// forward_fp8_converted as a row of the kernel table.
#pragma once

#include "cuda/forward_fp8/common/inner.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::converted {

Kernel kernel(ChooseInner choose);

}  // namespace flashcore::cuda::forward_fp8::converted
