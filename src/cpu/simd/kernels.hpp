// The kernels of both passes, by instruction set.
#pragma once

#include "cpu/simd/backward_job.hpp"
#include "cpu/simd/tile_job.hpp"
#include "cpu/target.hpp"

namespace flashcore::cpu {

// Null for an instruction set that this build has no kernels for.
struct TargetKernels {
  const SimdKernels* forward = nullptr;
  const BackwardKernels* backward = nullptr;
};

TargetKernels kernels_of(Target target);

}  // namespace flashcore::cpu
