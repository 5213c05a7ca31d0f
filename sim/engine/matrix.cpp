#include "engine/matrix.hpp"

#include <array>
#include <bit>

#include "engine/byte_types.hpp"
#include "engine/number_formats.hpp"

namespace flashcore::sim {

float widen(uint32_t bits, ElementType type) {
  static const std::array<float, 65536> f16 = [] {
    std::array<float, 65536> table{};
    for (uint32_t i = 0; i < table.size(); ++i) table[i] = of_f16(static_cast<uint16_t>(i));
    return table;
  }();
  constexpr uint32_t kTf32Bits = 0xffffe000u;                 // lower bits are ignored
  if (type == kE5M2Elements) return f16[(bits & 0xff) << 8];  // fp16's upper half
  switch (type) {
    case ElementType::f16:
      return f16[bits & 0xffff];
    case ElementType::bf16:
      return of_bf16(static_cast<uint16_t>(bits));
    case ElementType::e4m3:
      return of_e4m3(static_cast<uint8_t>(bits));
    case ElementType::tf32:
      return std::bit_cast<float>(bits & kTf32Bits);
  }
  return 0;
}

void multiply(float* d, const float* a, const float* b, int m, int n, int k) {
  for (int row = 0; row < m; ++row) {
    float* const sum = d + row * n;
    for (int i = 0; i < k; ++i) {
      const float left = a[row * k + i];
      const float* const right = b + i * n;
      for (int column = 0; column < n; ++column) sum[column] += left * right[column];
    }
  }
}

}  // namespace flashcore::sim
