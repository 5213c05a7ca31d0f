// Kinds of element types.
#pragma once

#include "flashcore/flashcore.hpp"

namespace flashcore {

constexpr bool is_fp8(DType dtype) { return dtype == DType::f8e4m3 || dtype == DType::f8e5m2; }

}  // namespace flashcore
