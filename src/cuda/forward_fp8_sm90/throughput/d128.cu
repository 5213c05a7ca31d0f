// forward_fp8_sm90 at head dimension 128.
#include "cuda/forward_fp8_sm90/throughput/instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

InstanceEntry d128() {
  using Compiled = CompiledInstance<1>;
  return {&Compiled::prepare, &Compiled::launch};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
