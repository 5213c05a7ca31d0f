// What a rung of the ladder computes. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::ladder {

// `input`: f16 or f8e4m3. `tensor_maps`: it reads through TMA.
Supports supports(DType input, Arch arch, bool tensor_maps);

}  // namespace flashcore::cuda::ladder
