// What forward_converted:fp8 computes where a 16-bit kernel does. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::convert::fp8 {

Supports supports();

}  // namespace flashcore::cuda::convert::fp8
