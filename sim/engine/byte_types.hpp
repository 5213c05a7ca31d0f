// Types of 8-bit operands besides e4m3: e5m2, and products
// with an e4m3 left operand and an e5m2 right operand.
#pragma once

#include "engine/matrix.hpp"

namespace flashcore::sim {

inline constexpr auto kE5M2Elements = static_cast<ElementType>(16);
inline constexpr auto kE4M3WithE5M2 = static_cast<ElementType>(17);

constexpr ElementType left_type(ElementType type) {
  return type == kE4M3WithE5M2 ? ElementType::e4m3 : type;
}
constexpr ElementType right_type(ElementType type) {
  return type == kE4M3WithE5M2 ? kE5M2Elements : type;
}
constexpr bool is_byte(ElementType type) {
  return type == ElementType::e4m3 || type == kE5M2Elements || type == kE4M3WithE5M2;
}

}  // namespace flashcore::sim
