// forward_fp8_sm90 with options, e5m2, head dimensions up to 64.
#include "cuda/forward_fp8_sm90/throughput/option_instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

OptionEntry options_e5m2_64() { return CompiledOptions<0, true>::entry(); }

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
