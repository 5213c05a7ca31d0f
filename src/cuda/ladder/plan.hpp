// The rungs of the ladder as rows of the kernel table, under their own names ("04_wmma_pv").
#pragma once

#include <vector>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::ladder {

// Best first: the highest rung leads. Only a few are chosen automatically.
std::vector<Variant> variants();

}  // namespace flashcore::cuda::ladder
