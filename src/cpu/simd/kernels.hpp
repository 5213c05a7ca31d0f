// The kernels of both passes and of quantisation, per instruction set.
#pragma once

#include "cpu/simd/backward_job.hpp"
#include "cpu/simd/quantize_rows.hpp"
#include "cpu/simd/tile_job.hpp"
#include "cpu/target.hpp"

namespace flashcore::cpu {

// Members are null for an instruction set that this build has no kernels for.
struct TargetKernels {
  const SimdKernels* forward = nullptr;
  const BackwardKernels* backward = nullptr;
  const QuantizeKernels* quantize = nullptr;  // only fp32 targets, as from target_for(false)
};

TargetKernels kernels_of(Target target);

}  // namespace flashcore::cpu
