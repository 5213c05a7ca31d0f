// forward_converted:v_rows as a variant of the kernel table.
#pragma once

#include "cuda/convert/common/inner.hpp"
#include "kernel/kernel.hpp"

namespace flashcore::cuda::convert::v_rows {

Variant variant(ChooseInner choose);

}  // namespace flashcore::cuda::convert::v_rows
