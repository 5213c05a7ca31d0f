// forward_fp8_sm90 at head dimension 128, three consumers.
#include "cuda/forward_fp8_sm90/throughput/instance.cuh"

namespace flashcore::cuda::forward_fp8_sm90::throughput {

InstanceEntry d128_three() {
  using Compiled = CompiledInstance<kThreeAt128>;
  return {&Compiled::prepare, &Compiled::launch};
}

}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
