// forward_converted:v_rows as a variant of the kernel table.
#pragma once

#include "cuda/forward_fp8/common/inner.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::v_rows {

Variant variant(ChooseInner choose);

}  // namespace flashcore::cuda::forward_fp8::v_rows
