// The ladder's table, in climbing order.
#include <array>

#include "cuda/ladder/rung_table.hpp"

namespace flashcore::cuda::ladder {

std::span<const Rung> rungs() {
  // clang-format off
  static const std::array table{
      kRung00Unfused,
      kRung01Scalar,
      kRung02WmmaQk,
      kRung03VectorPv,
      kRung04WmmaPv,
      kRung05WarpSoftmax,
      kRung06CpAsync,
      kRung06CpAsyncS3,
      kRung06CpAsyncS2Producer,
      kRung06CpAsyncS3Producer,
      kRung07XorSwizzle,
      kRung08RegisterSoftmax,
      kRung09FusedEpilogue,
      kRung10LargeTiles,
      kRung10LargeTilesQ128,
      kRung11WarpSpecialized,
      kRung12MmaSync,
      kRung13Fp8StageC,
      kRung14Fp8Native,
      kRung15WgmmaTma,
  };
  // clang-format on
  return table;
}

}  // namespace flashcore::cuda::ladder
