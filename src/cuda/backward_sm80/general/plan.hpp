// backward_sm80 as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm80::general {

Variant variant();

}  // namespace flashcore::cuda::backward_sm80::general
