// Names used by the generated instance files.
#pragma once

#include "cuda/decode_sm90/stream_kv/kernel.cuh"

namespace flashcore::cuda::decode_sm90::stream_kv {

using attention::decode::Bf16, attention::decode::Fp16;

}  // namespace flashcore::cuda::decode_sm90::stream_kv
