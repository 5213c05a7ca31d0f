// The entries of the ladder's table, one or more per
// rung file; rungs.cpp lists them in climbing order.
#pragma once

#include "cuda/ladder/rung.hpp"

namespace flashcore::cuda::ladder {

extern const Rung kRung00Unfused;
extern const Rung kRung01Scalar;
extern const Rung kRung02WmmaQk;
extern const Rung kRung03VectorPv;
extern const Rung kRung04WmmaPv;
extern const Rung kRung05WarpSoftmax;
extern const Rung kRung06CpAsync;
extern const Rung kRung06CpAsyncS3;
extern const Rung kRung06CpAsyncS2Producer;
extern const Rung kRung06CpAsyncS3Producer;
extern const Rung kRung07XorSwizzle;
extern const Rung kRung08RegisterSoftmax;
extern const Rung kRung09FusedEpilogue;
extern const Rung kRung10LargeTiles;
extern const Rung kRung10LargeTilesQ128;
extern const Rung kRung11WarpSpecialized;
extern const Rung kRung12MmaSync;
extern const Rung kRung13Fp8StageC;
extern const Rung kRung14Fp8Native;
extern const Rung kRung15WgmmaTma;

}  // namespace flashcore::cuda::ladder
