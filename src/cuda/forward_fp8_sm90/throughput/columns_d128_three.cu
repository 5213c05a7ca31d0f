// forward_fp8_sm90 at head dimension 128, three consumers, V stored transposed by the caller.
#include "cuda/forward_fp8_sm90/throughput/columns_instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

ColumnsEntry columns_d128_three() { return CompiledColumns<kThreeAt128>::entry(); }

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
