// The types of elements.
#pragma once

#include <cstdint>

namespace flashcore::cuda::attention {

enum class ElementType : int32_t { f32, f16, bf16, e4m3, e5m2 };

constexpr int bytes_of(ElementType type) {
  if (type == ElementType::f32) return 4;
  return type == ElementType::f16 || type == ElementType::bf16 ? 2 : 1;
}

}  // namespace flashcore::cuda::attention
