// The element type of a tensor that resolve() accepts.
#pragma once

#include "cuda/attention/element_type.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cuda::host {

constexpr attention::ElementType element_type(DType dtype) {
  using attention::ElementType;
  switch (dtype) {
    case DType::f16:
      return ElementType::f16;
    case DType::bf16:
      return ElementType::bf16;
    case DType::f8e4m3:
      return ElementType::e4m3;
    case DType::f8e5m2:
      return ElementType::e5m2;
    default:
      return ElementType::f32;
  }
}

}  // namespace flashcore::cuda::host
