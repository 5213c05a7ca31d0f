// The fastest that a device multiplies matrices of a type, measured in this process: what a
// kernel's rate is a percentage of.
#pragma once

#include <optional>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Ceiling {
  double flop_a_second = 0;
  std::string what;  // "fp32 FMA on 2 threads", "bf16 matrix product"
};

// Nothing where there is no such probe for the device and type.
std::optional<Ceiling> measure_ceiling(const PlanOptions& options, DType dtype);

// ceiling_cuda.cpp or ceiling_no_cuda.cpp defines it.
std::optional<Ceiling> measure_cuda_ceiling(int32_t index, DType dtype);

}  // namespace flashcore::bench
