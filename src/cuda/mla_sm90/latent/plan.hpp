// mla_sm90 as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::mla_sm90::latent {

// other: computes what this kernel does and more. Runs whose V does not begin where K does, or whose
// tensors do not begin at multiples of 16 bytes, go to it.
Variant variant(const Variant& other);

}  // namespace flashcore::cuda::mla_sm90::latent
