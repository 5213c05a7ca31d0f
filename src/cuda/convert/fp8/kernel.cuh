// From fp8 to 16 bits, and from those to the type of O: bound by memory.
//
// Threads of a block: `lanes` neighbours in a row, eight elements each, then the next rows.
// Rows are counted as they lie in the workspace, so that its side is one stream.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <limits>

#include "cuda/attention/entry.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/convert/fp8/params.hpp"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/math.cuh"

namespace flashcore::cuda::convert::fp8 {

// True if the target being compiled for has dependent launches, and in host code.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr bool kHasDependentLaunch = true;
#else
constexpr bool kHasDependentLaunch = false;
#endif

using attention::ElementType;

constexpr uint32_t kMagnitude = 0x7FFFFFFFU, kAllLanes = 0xFFFFFFFFU;

struct Place {
  int batch, head, row;
};

__device__ __forceinline__ Place find_place(const Rows& rows, uint32_t number) {
  const uint32_t rest = rows.by_inner.divide(number), in = number - rest * rows.inner;
  const uint32_t batch = rows.by_outer.divide(rest), out = rest - batch * rows.outer;
  return {static_cast<int>(batch), static_cast<int>(rows.heads_inner ? in : out),
          static_cast<int>(rows.heads_inner ? out : in)};
}

// The sequence that a row belongs to, and which of its rows it is. Packed rows search for it, whatever is in
// memory.
__device__ __forceinline__ Place in_entry(const attention::ForwardParams& p, const Place& place,
                                          bool is_q) {
  const attention::EntryVector& begins = is_q ? p.cu_seqlens_q : p.cu_seqlens_kv;
  if (begins.data == nullptr) return place;
  const int entry = attention::last_entry(place.row, p.batch, [&](int i) { return begins.at(i); });
  const int row = place.row - attention::clamped(begins.at(entry), 0, place.row);
  return {entry, place.head, row};
}

__device__ __forceinline__ float scale_at(const Scales& s, const Place& place) {
  if (s.data == nullptr) return 1;
  int block = static_cast<int>(s.by_block.divide(static_cast<uint32_t>(place.row)));
  if (block >= s.blocks) block = s.blocks - 1;
  return s.data[place.batch * s.batch + place.head * s.head + block * s.block];
}

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLargestF16 = 65504;

// The power of two of a number, as 2^e and as 2^-e; of what is not a normal number 1. Two factors, since one
// may not be an fp32 number.
struct Power {
  float up[2], down[2];
};
__device__ __forceinline__ Power power_of(float x) {
  const int field = static_cast<int>(__float_as_uint(x) >> 23 & 255U);
  const int e = field == 0 || field == 255 ? 0 : field - 127;
  const auto two_to = [](int n) { return __uint_as_float(static_cast<uint32_t>(127 + n) << 23); };
  const int low = e / 2, high = e - low;
  return {{two_to(low), two_to(high)}, {two_to(-low), two_to(-high)}};
}

__device__ __forceinline__ float with_powers(Powers powers, float lift, float scale,
                                             float partner) {
  if (powers == Powers::left_out) {
    const Power power = power_of(scale);
    return scale * power.down[0] * power.down[1] * lift;
  }
  if (powers == Powers::brought_in) {
    const Power power = power_of(partner);
    return scale * lift * power.up[0] * power.up[1];
  }
  return scale;
}

// The place of a query head's keys, among scales of K or V.
__device__ __forceinline__ Place of_keys(const Place& owner, const attention::Divisor& by_group) {
  return {owner.batch, static_cast<int>(by_group.divide(static_cast<uint32_t>(owner.head))), 0};
}

// Rows in use of a sequence; packed: all.
__device__ __forceinline__ int rows_in_use(const attention::ForwardParams& p, int batch,
                                           bool is_q) {
  const attention::EntryVector& lengths = is_q ? p.seqlens_q : p.seqlens_kv;
  const int most = is_q ? p.seqlen_q : p.seqlen_kv;
  if (p.cu_seqlens_q.data != nullptr) return INT32_MAX;
  return lengths.data == nullptr ? most : attention::clamped(lengths.at(batch), 0, most);
}

// Loads `count` bytes at `at` and zeros, eight in all.
__device__ __forceinline__ uint2 load_chunk(const Input& in, int64_t at, int count) {
  const auto* const from = static_cast<const uint8_t*>(in.from.data) + at;
  if (in.whole_chunks) return count > 0 ? *reinterpret_cast<const uint2*>(from) : uint2{0, 0};
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (i < count) words[i / 4] |= uint32_t{from[i]} << 8 * (i % 4);
  }
  return {words[0], words[1]};
}

// A finite number stays one.
__device__ __forceinline__ float within_f16(float x) {
  return fabsf(x) > kLargestF16 && fabsf(x) < kInfinity ? copysignf(kLargestF16, x) : x;
}

// Two fp8 numbers, in bits 0..15, times a scale. e5m2 is the upper half of fp16.
__device__ __forceinline__ uint32_t scaled_pair(const Input& in, uint32_t pair, float scale) {
  const uint32_t halves = in.e5m2 ? __byte_perm(pair, 0, 0x1404) : ptx::e4m3x2_to_f16x2(pair);
  const float low = ptx::f16_to_float(static_cast<uint16_t>(halves)) * scale;
  const float high = ptx::f16_to_float(static_cast<uint16_t>(halves >> 16)) * scale;
  return in.f16 ? ptx::pack_f16x2(within_f16(low), within_f16(high)) : ptx::pack_bf16x2(low, high);
}

__device__ __forceinline__ uint4 scaled_chunk(const Input& in, uint2 bytes, float scale) {
  return make_uint4(
      scaled_pair(in, bytes.x & 0xFFFFU, scale), scaled_pair(in, bytes.x >> 16, scale),
      scaled_pair(in, bytes.y & 0xFFFFU, scale), scaled_pair(in, bytes.y >> 16, scale));
}

__device__ __forceinline__ void clear(const Largest& largest) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (largest.data == nullptr || at >= int64_t{largest.batches} * largest.heads) return;
  const int64_t batch = at / largest.heads, head = at - batch * largest.heads;
  largest.data[batch * largest.batch + head * largest.head] = 0;
}

struct ReadRow {
  uint2 bytes;
  float scale;
  bool is_written;
};

__device__ __forceinline__ ReadRow read_row(const InputParams& p, const Input& in, uint32_t number,
                                            int column) {
  ReadRow row{{0, 0}, 1, number < in.rows.count};
  if (!row.is_written) return row;
  const Place place = find_place(in.rows, number);
  const int in_use = rows_in_use(p, place.batch, in.is_q);
  row.is_written = place.row - kTileRows < in_use;
  if (place.row >= in_use) return row;
  const int left = in.columns - column;
  row.bytes = load_chunk(
      in,
      place.batch * in.from.batch + place.head * in.from.head + place.row * in.from.row + column,
      left < kChunk ? left : kChunk);
  const bool by_entry = in.scales.by_entry || (in.is_q && p.inputs[1].scales.by_entry);
  const Place owner = by_entry ? in_entry(p, place, in.is_q) : place;
  const float partner = in.powers == Powers::brought_in
                            ? scale_at(p.inputs[1].scales, of_keys(owner, p.by_group))
                            : 1.0F;
  row.scale = with_powers(in.powers, in.lift, scale_at(in.scales, owner), partner);
  return row;
}

__global__ void __launch_bounds__(kThreads, 4)
    convert_inputs_kernel(const __grid_constant__ InputParams p) {
  if constexpr (kHasDependentLaunch) {
    ptx::wait_for_earlier_grids();
    ptx::start_next_grid();
  }
  clear(p.largest);
  const int which =
      (blockIdx.x >= p.first_blocks[0] ? 1 : 0) + (blockIdx.x >= p.first_blocks[1] ? 1 : 0);
  if (blockIdx.x >= p.first_blocks[2]) return;
  const Input& in = p.inputs[which];
  const unsigned int block = blockIdx.x - (which == 0 ? 0 : p.first_blocks[which - 1]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % in.rows.lanes;
  const int together = kThreads / in.rows.lanes;
  const uint32_t first = block * static_cast<uint32_t>(in.rows.rows_per_block()) +
                         static_cast<uint32_t>(thread / in.rows.lanes);
  for (int column = kChunk * lane; column < in.pitch; column += kChunk * in.rows.lanes) {
    ReadRow rows[kDepth];
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      rows[i] = read_row(p, in, first + static_cast<uint32_t>(i * together), column);
    }
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      if (!rows[i].is_written) continue;
      const int64_t at = (int64_t{first} + static_cast<int64_t>(i) * together) * in.pitch + column;
      *reinterpret_cast<uint4*>(in.to + at) = scaled_chunk(in, rows[i].bytes, rows[i].scale);
    }
  }
}

__device__ __forceinline__ uint32_t pack_fp8x4(const float* x, ElementType type) {
  const __nv_fp8_interpretation_t as = type == ElementType::e4m3 ? __NV_E4M3 : __NV_E5M2;
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    word |= uint32_t{__nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, as)} << 8 * i;
  }
  return word;
}

// Eight numbers to element `at` of O, a multiple of 8 there.
__device__ __forceinline__ void store_chunk(void* o, ElementType type, int64_t at,
                                            const float (&x)[kChunk]) {
  if (type == ElementType::f32) {
    auto* const to = reinterpret_cast<float4*>(static_cast<float*>(o) + at);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else if (type == ElementType::e4m3 || type == ElementType::e5m2) {
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(o) + at) =
        make_uint2(pack_fp8x4(x, type), pack_fp8x4(x + 4, type));
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = type == ElementType::f16 ? ptx::pack_f16x2(x[2 * i], x[2 * i + 1])
                                          : ptx::pack_bf16x2(x[2 * i], x[2 * i + 1]);
    }
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(o) + at) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

__device__ __forceinline__ void store_element(void* o, ElementType type, int64_t at, float x) {
  if (type == ElementType::f32) {
    static_cast<float*>(o)[at] = x;
  } else if (type == ElementType::f16) {
    static_cast<uint16_t*>(o)[at] = static_cast<uint16_t>(ptx::pack_f16x2(x, 0));
  } else if (type == ElementType::bf16) {
    static_cast<uint16_t*>(o)[at] = static_cast<uint16_t>(ptx::pack_bf16x2(x, 0));
  } else {
    static_cast<uint8_t*>(o)[at] =
        __nv_cvt_float_to_fp8(x, __NV_SATFINITE, type == ElementType::e4m3 ? __NV_E4M3 : __NV_E5M2);
  }
}

// A chunk of a row to O; the bits of its largest magnitude, NaN above all.
__device__ __forceinline__ uint32_t convert_chunk(const OutputParams& p, uint4 halves,
                                                  const Place& place, const Place& owner,
                                                  int column, float power) {
  const uint32_t words[4] = {halves.x, halves.y, halves.z, halves.w};
  const int count = p.head_dim_v - column;
  float x[kChunk];
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const auto half = static_cast<uint16_t>(words[i / 2] >> 16 * (i % 2));
    x[i] = (p.f16 ? ptx::f16_to_float(half) : ptx::bf16_to_float(half)) * power;
    const uint32_t bits = __float_as_uint(x[i]) & kMagnitude;
    if (i < count && bits > largest) largest = bits;
  }
  if (p.scales.data != nullptr) {
    const float scale = scale_at(p.scales, owner);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) x[i] = x[i] / scale;
  }
  const int64_t at = place.batch * p.o_batch + place.head * p.o_head + place.row * p.o_row + column;
  if (p.whole_chunks) {
    store_chunk(p.o, p.type, at, x);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) store_element(p.o, p.type, at + i, x[i]);
    }
  }
  return largest;
}

__device__ __forceinline__ uint32_t largest_of_lanes(uint32_t value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// Each thread has one row. A warp whose rows share an element of the tensor writes once.
__device__ __forceinline__ void keep_largest(const OutputParams& p, const Place& owner, int lane,
                                             uint32_t largest) {
  const int64_t at = owner.batch * p.largest.batch + owner.head * p.largest.head;
  const int64_t first = __shfl_sync(kAllLanes, at, 0);
  const bool all = __all_sync(kAllLanes, at == first) != 0;
  largest = largest_of_lanes(largest, all ? 32 : p.rows.lanes);
  const bool writes = all ? threadIdx.x % 32 == 0 : lane == 0;
  if (writes && largest != 0) atomicMax(p.largest.data + at, largest);
}

__global__ void __launch_bounds__(kThreads, 4)
    convert_outputs_kernel(const __grid_constant__ OutputParams p) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % p.rows.lanes;
  const int together = kThreads / p.rows.lanes;
  const uint32_t first = blockIdx.x * static_cast<uint32_t>(p.rows.rows_per_block()) +
                         static_cast<uint32_t>(thread / p.rows.lanes);
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    const uint32_t number = first + static_cast<uint32_t>(i * together);
    const bool exists = number < p.rows.count;
    const Place place = find_place(p.rows, exists ? number : 0);
    const Place owner = p.by_entry ? in_entry(p, place, true) : place;
    const float power =
        p.powers == Powers::kept
            ? 1.0F
            : with_powers(p.powers, p.lift, 1, scale_at(p.v_scales, of_keys(owner, p.by_group)));
    uint32_t largest = 0;
    for (int column = kChunk * lane; exists && column < p.pitch; column += kChunk * p.rows.lanes) {
      const uint4 halves =
          *reinterpret_cast<const uint4*>(p.from + int64_t{number} * p.pitch + column);
      const uint32_t found = convert_chunk(p, halves, place, owner, column, power);
      largest = found > largest ? found : largest;
    }
    if (p.largest.data != nullptr) keep_largest(p, owner, lane, largest);
  }
}

}  // namespace flashcore::cuda::convert::fp8
