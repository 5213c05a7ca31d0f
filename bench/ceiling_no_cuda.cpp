// Builds without CUDA have no CUDA ceiling.
#include "bench/ceiling.hpp"

namespace flashcore::bench {

std::optional<Ceiling> measure_cuda_ceiling(int32_t /*index*/, DType /*dtype*/) {
  return std::nullopt;
}

}  // namespace flashcore::bench
