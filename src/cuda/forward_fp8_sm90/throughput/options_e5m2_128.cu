// forward_fp8_sm90 with options, e5m2, head dimensions up to 128.
#include "cuda/forward_fp8_sm90/throughput/option_instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

OptionEntry options_e5m2_128() { return CompiledOptions<1, true>::entry(); }

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
