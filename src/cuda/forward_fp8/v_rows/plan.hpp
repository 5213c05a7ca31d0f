// forward_fp8_v_rows as a row of the kernel table.
#pragma once

#include "cuda/forward_fp8/common/inner.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::v_rows {

Kernel kernel(ChooseInner choose);

}  // namespace flashcore::cuda::forward_fp8::v_rows
