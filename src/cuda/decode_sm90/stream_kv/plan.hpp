// decode_sm90 as a row of the kernel table.
#pragma once

#include "kernel/kernel.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {

Variant variant();

}  // namespace flashcore::cuda::decode_sm90::stream_kv
