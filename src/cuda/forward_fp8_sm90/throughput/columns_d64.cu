// forward_fp8_sm90 at head dimension 64, V stored transposed by the caller.
#include "cuda/forward_fp8_sm90/throughput/columns_instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

ColumnsEntry columns_d64() { return CompiledColumns<0>::entry(); }

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
