// The kernels of both passes and of quantisation, by instruction set.
#pragma once

#include "cpu/simd/backward_job.hpp"
#include "cpu/simd/quantize_rows.hpp"
#include "cpu/simd/tile_job.hpp"
#include "cpu/target.hpp"

namespace flashcore::cpu {

// Null for an instruction set that this build has no kernels for.
struct TargetKernels {
  const SimdKernels* forward = nullptr;
  const BackwardKernels* backward = nullptr;
  const QuantizeKernels* quantize = nullptr;  // of fp32 targets, as target_for(false) gives them
};

TargetKernels kernels_of(Target target);

}  // namespace flashcore::cpu
