// backward_sm90:wide as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::backward_sm90::wide {

Variant variant();

}  // namespace flashcore::cuda::backward_sm90::wide
