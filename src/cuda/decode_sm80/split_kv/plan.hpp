// decode_sm80 as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {

Variant variant();

}  // namespace flashcore::cuda::decode_sm80::split_kv
