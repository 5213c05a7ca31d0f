#include "engine/product_arithmetic.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/access.hpp"
#include "engine/byte_types.hpp"
#include "engine/matrix.hpp"
#include "engine/product_operands.hpp"

namespace flashcore::sim {
namespace {

constexpr size_t kRows = kWarpRows, kK = kProductDepth, kByteK = 2 * kProductDepth;

std::array<float, 8> widened_piece(Block& block, uint32_t piece, ElementType type) {
  std::array<uint16_t, 8> bits;
  std::memcpy(bits.data(), byte_at(block, piece), sizeof bits);
  std::array<float, 8> values{};
  for (size_t i = 0; i < 8; ++i) values[i] = widen(bits[i], type);
  return values;
}
std::array<float, 16> widened_byte_piece(Block& block, uint32_t piece, ElementType type) {
  std::array<uint8_t, 16> bits;
  std::memcpy(bits.data(), byte_at(block, piece), sizeof bits);
  std::array<float, 16> values{};
  for (size_t i = 0; i < 16; ++i) values[i] = widen(bits[i], type);
  return values;
}

using Left = std::array<float, kRows * kK>;
using ByteLeft = std::array<float, kRows * kByteK>;

void left_from_registers(Left& left, const Product& product, ElementType type) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t r = 0; r < 4; ++r) {
      const size_t row = lane / 4 + r % 2 * 8, k = 2 * (lane % 4) + r / 2 * 8;
      const uint32_t bits = product.a_lane[lane][r];
      left[row * kK + k] = widen(bits & 0xffff, type);
      left[row * kK + k + 1] = widen(bits >> 16, type);
    }
  }
}

void left_from_shared(Left& left, const Warp& warp, const Product& product, ElementType type) {
  const size_t first_row = static_cast<size_t>(warp.index % 4) * kRows;
  if (product.a_is_mn_major) {
    constexpr size_t kPieces = 4 * kRows / 8;  // per k
    for (size_t k = 0; k < kK; ++k) {
      for (size_t row = 0; row < kRows; row += 8) {
        const auto values =
            widened_piece(*warp.block, product.a_pieces[k * kPieces + (first_row + row) / 8], type);
        for (size_t i = 0; i < 8; ++i) left[(row + i) * kK + k] = values[i];
      }
    }
    return;
  }
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t half = 0; half < 2; ++half) {
      const auto values =
          widened_piece(*warp.block, product.a_pieces[2 * (first_row + row) + half], type);
      std::copy(values.begin(), values.end(), left.begin() + row * kK + 8 * half);
    }
  }
}

std::vector<float> right_of(const Warp& warp, const Product& product, ElementType type, size_t n) {
  std::vector<float> right(kK * n);
  if (product.b_is_mn_major) {
    for (size_t i = 0; i < product.b_pieces.size(); ++i) {
      const auto values = widened_piece(*warp.block, product.b_pieces[i], type);
      std::copy(values.begin(), values.end(), right.begin() + static_cast<std::ptrdiff_t>(8 * i));
    }
    return right;
  }
  for (size_t column = 0; column < n; ++column) {
    for (size_t half = 0; half < 2; ++half) {
      const auto values = widened_piece(*warp.block, product.b_pieces[2 * column + half], type);
      for (size_t k = 0; k < 8; ++k) right[(8 * half + k) * n + column] = values[k];
    }
  }
  return right;
}

// Operands of 8 bits: both are K-major, and a product is 32 deep.
ByteLeft byte_left_of(const Warp& warp, const Product& product, ElementType type) {
  ByteLeft left{};
  if (product.a_in_shared) {
    const size_t first_row = static_cast<size_t>(warp.index % 4) * kRows;
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t half = 0; half < 2; ++half) {
        const auto values =
            widened_byte_piece(*warp.block, product.a_pieces[2 * (first_row + row) + half], type);
        std::copy(values.begin(), values.end(), left.begin() + row * kByteK + 16 * half);
      }
    }
    return left;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t r = 0; r < 4; ++r) {
      const size_t row = lane / 4 + r % 2 * 8, k = 4 * (lane % 4) + r / 2 * 16;
      for (size_t i = 0; i < 4; ++i) {
        left[row * kByteK + k + i] = widen(product.a_lane[lane][r] >> 8 * i & 0xff, type);
      }
    }
  }
  return left;
}

std::vector<float> byte_right_of(const Warp& warp, const Product& product, ElementType type,
                                 size_t n) {
  std::vector<float> right(kByteK * n);
  for (size_t column = 0; column < n; ++column) {
    for (size_t half = 0; half < 2; ++half) {
      const auto values =
          widened_byte_piece(*warp.block, product.b_pieces[2 * column + half], type);
      for (size_t k = 0; k < 16; ++k) right[(16 * half + k) * n + column] = values[k];
    }
  }
  return right;
}

}  // namespace

void compute_product(Warp& warp, Product& product) {
  if (product.done) return;
  product.done = true;
  const auto type = static_cast<ElementType>(product.kind);
  Accumulators& d = *product.d;
  if (product.overwrite) std::fill(d.value.begin(), d.value.end(), 0.0F);
  if (is_byte(type)) {
    const auto left = byte_left_of(warp, product, left_type(type));
    const auto right =
        byte_right_of(warp, product, right_type(type), static_cast<size_t>(d.columns));
    multiply(d.value.data(), left.data(), right.data(), kWarpRows, d.columns, kByteK);
    return;
  }
  Left left;
  if (product.a_in_shared) {
    left_from_shared(left, warp, product, type);
  } else {
    left_from_registers(left, product, type);
  }
  const auto right = right_of(warp, product, type, static_cast<size_t>(d.columns));
  multiply(d.value.data(), left.data(), right.data(), kWarpRows, d.columns, kProductDepth);
}

}  // namespace flashcore::sim
