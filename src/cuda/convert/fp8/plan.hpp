// forward_converted:fp8 as a variant of the kernel table.
#pragma once

#include "cuda/convert/common/inner.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::convert::fp8 {

Variant variant(ChooseInner choose);

}  // namespace flashcore::cuda::convert::fp8
