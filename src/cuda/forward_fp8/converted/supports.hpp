// What forward_converted:fp8 computes where a 16-bit kernel does. Needs no CUDA header.
#pragma once

#include "kernel/supports.hpp"

namespace flashcore::cuda::forward_fp8::converted {

Supports supports();

}  // namespace flashcore::cuda::forward_fp8::converted
