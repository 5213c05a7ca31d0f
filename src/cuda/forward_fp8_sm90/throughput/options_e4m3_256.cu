// forward_fp8_sm90 with options, e4m3, head dimensions up to 256.
#include "cuda/forward_fp8_sm90/throughput/option_instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

OptionEntry options_e4m3_256() { return CompiledOptions<2, false>::entry(); }

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
