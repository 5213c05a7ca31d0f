// forward_fp8_sm89 for rows of up to 64 elements.
#include "cuda/forward_fp8_sm89/throughput/instance.cuh"

namespace flashcore::cuda::forward_fp8_sm89::throughput {

InstanceEntry d64() {
  using Compiled = CompiledInstance<0>;
  return {&Compiled::prepare, &Compiled::launch};
}

}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
