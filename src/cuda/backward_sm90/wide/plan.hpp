// backward_sm90_wide as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm90::wide {

Kernel kernel();

}  // namespace flashcore::cuda::backward_sm90::wide
