// mla_sm90 as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::mla_sm90::latent {

// Only for runs whose V begins where K does, and whose tensors begin at multiples of 16 bytes.
Variant variant();

}  // namespace flashcore::cuda::mla_sm90::latent
