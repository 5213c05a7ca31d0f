// Which distances between rows the copies of CUDA kernels take.
#pragma once

#include "problem/row_strides.hpp"

namespace flashcore::cuda::host {

using flashcore::misaligned_rows;
using flashcore::unmappable_strides;

}  // namespace flashcore::cuda::host
