// forward_converted:fp8 as a variant of the kernel table.
#pragma once

#include "cuda/forward_fp8/common/inner.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::converted {

Variant variant(ChooseInner choose);

}  // namespace flashcore::cuda::forward_fp8::converted
