// Matrix instructions of one warp: mma.sync, ldmatrix, stmatrix and nvcuda::wmma.
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tf32.cuh"
#include "recorded.hpp"

namespace flashcore::recorded {
namespace {

using namespace cuda;
namespace wmma = nvcuda::wmma;

constexpr unsigned kLanes = 32;
constexpr int kMost = 7;
enum class Product { f16, bf16, e4m3, tf32 };
constexpr const char* kProductNames[] = {"f16", "bf16", "e4m3", "tf32"};

// What the left operand's elements are besides small whole numbers.
enum class Values { whole, subnormal, special };

// Returns 16 bits: a subnormal number, or now and then an infinity or NaN.
template <Product kProduct, Values kValues>
__device__ uint32_t hashed_element(uint32_t stream, uint32_t index) {
  constexpr bool kIsF16 = kProduct == Product::f16;
  const uint32_t bits = hashed(stream, index);
  if constexpr (kValues == Values::subnormal) return bits & (kIsF16 ? 0x83ffu : 0x807fu);
  constexpr uint32_t kInfinity = kIsF16 ? 0x7c00u : 0x7f80u;
  if (bits % 64 == 0) return kInfinity + 1 + (bits >> 6) % 8;
  if (bits % 64 < 3) return kInfinity | (bits >> 16 & 0x8000u);
  return (kIsF16 ? ptx::pack_f16x2(small_number(stream + 1, index, kMost), 0)
                 : ptx::pack_bf16x2(small_number(stream + 1, index, kMost), 0)) &
         0xffffu;
}

// Registers of hashed numbers, whatever element each of them is. tf32 has bits that the product
// ignores.
template <Product kProduct>
__device__ uint32_t hashed_register(uint32_t stream, uint32_t index) {
  const auto x = [&](uint32_t i) { return small_number(stream, 4 * index + i, kMost); };
  if constexpr (kProduct == Product::f16) return ptx::pack_f16x2(x(0), x(1));
  if constexpr (kProduct == Product::bf16) return ptx::pack_bf16x2(x(0), x(1));
  if constexpr (kProduct == Product::e4m3) return ptx::pack_e4m3x4(x(0), x(1), x(2), x(3));
  return __float_as_uint(x(0)) | (hashed(stream + 9, index) & 0x1fffu);
}

// A NaN is one whatever its bits are.
__device__ uint32_t bits_of(float x) { return x != x ? 0x7fffffffu : __float_as_uint(x); }

template <Product kProduct, Values kValues>
__global__ void warp_product(uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  uint32_t a[4], b[2];
  float d[4];
  for (uint32_t i = 0; i < 4; ++i) {
    if constexpr (kValues == Values::whole) {
      a[i] = hashed_register<kProduct>(5, 4 * lane + i);
    } else {
      const auto element = [&](uint32_t half) {
        return hashed_element<kProduct, kValues>(13, 8 * lane + 2 * i + half);
      };
      a[i] = element(0) | element(1) << 16;
    }
  }
  for (uint32_t i = 0; i < 2; ++i) b[i] = hashed_register<kProduct>(6, 2 * lane + i);
  for (uint32_t i = 0; i < 4; ++i) {
    d[i] = kValues == Values::subnormal ? 0 : small_number(7, 4 * lane + i, 100);
  }
  if constexpr (kProduct == Product::f16) {
    ptx::mma_m16n8k16_f16(d, a, b[0], b[1]);
  } else if constexpr (kProduct == Product::bf16) {
    ptx::mma_m16n8k16_bf16(d, a, b[0], b[1]);
  } else if constexpr (kProduct == Product::e4m3) {
    ptx::mma_m16n8k32_e4m3(d, a, b[0], b[1]);
  } else {
    const float left[4] = {__uint_as_float(a[0]), __uint_as_float(a[1]), __uint_as_float(a[2]),
                           __uint_as_float(a[3])};
    ptx::mma_m16n8k8_tf32(d, left, __uint_as_float(b[0]), __uint_as_float(b[1]));
  }
  for (uint32_t i = 0; i < 4; ++i) out[4 * lane + i] = bits_of(d[i]);
}

// 32 rows of 16 bytes; lane i names row (5 i + 3) modulo 32.
constexpr uint32_t kMatrixWords = kLanes * 4, kMatrixBytes = 4 * kMatrixWords;
__device__ uint32_t row_of(uint32_t lane) { return (5 * lane + 3) % kLanes; }

template <bool kTransposed>
__global__ void matrix_load(uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  auto* const words = reinterpret_cast<uint32_t*>(ptx::dynamic_shared());
  for (uint32_t i = lane; i < kMatrixWords; i += kLanes) words[i] = hashed(8, i);
  __syncwarp();
  uint32_t r[4];
  const uint32_t row = ptx::shared_address(words + 4 * row_of(lane));
  if constexpr (kTransposed) {
    ptx::ldmatrix_x4_trans(r, row);
  } else {
    ptx::ldmatrix_x4(r, row);
  }
  for (uint32_t i = 0; i < 4; ++i) out[4 * lane + i] = r[i];
}

__global__ void matrix_store(uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  auto* const words = reinterpret_cast<uint32_t*>(ptx::dynamic_shared());
  const auto r = [&](uint32_t i) { return hashed(9, 4 * lane + i); };
  ptx::stmatrix_x4(ptx::shared_address(words + 4 * row_of(lane)), r(0), r(1), r(2), r(3));
  __syncwarp();
  for (uint32_t i = lane; i < kMatrixWords; i += kLanes) out[i] = words[i];
}

struct WmmaShared {
  __half a[256], b[256];
  float d[256];
};
constexpr uint32_t kWmmaWords = kLanes * (16 + 16 + 8) + 256;

// The registers of A, B and D, and D as it is stored.
template <class LayoutB>
__global__ void wmma_product(uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  auto& shared = *reinterpret_cast<WmmaShared*>(ptx::dynamic_shared());
  for (uint32_t i = lane; i < 256; i += kLanes) {
    shared.a[i] = __float2half(small_number(10, i, kMost));
    shared.b[i] = __float2half(small_number(11, i, kMost));
    shared.d[i] = small_number(12, i, 100);
  }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, LayoutB> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
  wmma::load_matrix_sync(a, shared.a, 16);
  wmma::load_matrix_sync(b, shared.b, 16);
  wmma::load_matrix_sync(d, shared.d, 16, wmma::mem_col_major);
  wmma::mma_sync(d, a, b, d);
  __syncwarp();
  wmma::store_matrix_sync(shared.d, d, 16, wmma::mem_row_major);
  __syncwarp();
  for (uint32_t i = 0; i < 16; ++i) {
    out[40 * lane + i] = __float_as_uint(__half2float(a.x[i]));
    out[40 * lane + 16 + i] = __float_as_uint(__half2float(b.x[i]));
  }
  for (uint32_t i = 0; i < 8; ++i) out[40 * lane + 32 + i] = __float_as_uint(d.x[i]);
  for (uint32_t i = lane; i < 256; i += kLanes) {
    out[40 * kLanes + i] = __float_as_uint(shared.d[i]);
  }
}

constexpr host::LaunchShape one_warp(uint32_t shared_bytes) {
  return {.grid = dim3(1), .threads = kLanes, .shared_bytes = shared_bytes};
}

template <Product kProduct, Values kValues = Values::whole>
Case product_case(const char* what = "") {
  return {std::string("mma.sync ") + kProductNames[static_cast<int>(kProduct)] + what, [] {
            return words_of(warp_product<kProduct, kValues>, one_warp(0), size_t{kLanes} * 4);
          }};
}

}  // namespace

std::vector<Case> warp_cases() {
  return {
      product_case<Product::f16>(),
      product_case<Product::bf16>(),
      product_case<Product::e4m3>(),
      product_case<Product::tf32>(),
      product_case<Product::f16, Values::subnormal>(" of subnormal numbers"),
      product_case<Product::bf16, Values::subnormal>(" of subnormal numbers"),
      product_case<Product::f16, Values::special>(" of infinities and NaNs"),
      product_case<Product::bf16, Values::special>(" of infinities and NaNs"),
      {"ldmatrix",
       [] { return words_of(matrix_load<false>, one_warp(kMatrixBytes), kMatrixWords); }},
      {"ldmatrix.trans",
       [] { return words_of(matrix_load<true>, one_warp(kMatrixBytes), kMatrixWords); }},
      {"stmatrix", [] { return words_of(matrix_store, one_warp(kMatrixBytes), kMatrixWords); }},
      {"wmma, B by rows",
       [] {
         return words_of(wmma_product<wmma::row_major>, one_warp(sizeof(WmmaShared)), kWmmaWords);
       }},
      {"wmma, B by columns",
       [] {
         return words_of(wmma_product<wmma::col_major>, one_warp(sizeof(WmmaShared)), kWmmaWords);
       }},
  };
}

}  // namespace flashcore::recorded
