// forward_fp8_sm90 at head dimension 64.
#include "cuda/forward_fp8_sm90/throughput/instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

InstanceEntry d64() {
  using Compiled = CompiledInstance<0>;
  return {&Compiled::prepare, &Compiled::launch};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
