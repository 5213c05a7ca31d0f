// wgmma: every product of ptx/wgmma.cuh, with operands in the tiles of kernels.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/fragment.hpp"
#include "cuda/tile/smem_tile.hpp"
#include "recorded.hpp"

namespace flashcore::recorded {
namespace {

using namespace cuda;
using ptx::Accumulate, ptx::Major;

constexpr int kThreads = 128, kMost = 7;
enum class Left { shared, registers };

// D(64 x columns) of depth `kDepth`. With 64 the first product overwrites D, which holds NaN; with
// 128 it adds to numbers, and A is the second half of a tile of 128 rows.
template <int kColumns_, bool kIsBf16_, Left kLeft_, Major kMajor_, int kDepth_>
struct Shape {
  static constexpr int kColumns = kColumns_, kDepth = kDepth_;
  static constexpr bool kIsBf16 = kIsBf16_;
  static constexpr Left kLeft = kLeft_;
  static constexpr Major kMajor = kMajor_;
  static constexpr int kFirstRow = kDepth == 128 ? 64 : 0;
  static constexpr int kWholePanels = (kColumns + 63) / 64 * 64;
  using A = tile::SmemTile<128, kDepth, 2>;
  using ByColumns = tile::SmemTile<kColumns, kDepth, 2>;
  using ByRows = tile::SmemTile<kDepth, kWholePanels, 2>;
  using B = std::conditional_t<kMajor == Major::mn, ByRows, ByColumns>;
  static constexpr uint32_t kBytes = A::kBytes + B::kBytes;
  static constexpr size_t kWords = size_t{kThreads} * kColumns / 2;
};

template <class S>
__device__ uint32_t pack(float low, float high) {
  return S::kIsBf16 ? ptx::pack_bf16x2(low, high) : ptx::pack_f16x2(low, high);
}

template <class S, class Tile>
__device__ void fill(unsigned char* tile, uint32_t stream) {
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * Tile::kColumns / 2; i += kThreads) {
    const int row = 2 * i / Tile::kColumns, column = 2 * i % Tile::kColumns;
    const auto at = static_cast<uint32_t>(2 * i);
    *reinterpret_cast<uint32_t*>(tile + Tile::offset(row, column)) =
        pack<S>(small_number(stream, at, kMost), small_number(stream, at + 1, kMost));
  }
}

template <class S, Accumulate kAccumulate>
__device__ __forceinline__ void multiply(float (&d)[S::kColumns / 8][4], const uint32_t (&a)[4],
                                         uint64_t a_shared, uint64_t b) {
  if constexpr (S::kLeft == Left::registers && S::kIsBf16) {
    ptx::wgmma_rs_bf16<kAccumulate, S::kMajor>(d, a, b);
  } else if constexpr (S::kLeft == Left::registers) {
    ptx::wgmma_rs_f16<kAccumulate, S::kMajor>(d, a, b);
  } else if constexpr (S::kIsBf16) {
    ptx::wgmma_ss_bf16<kAccumulate, S::kMajor>(d, a_shared, b);
  } else {
    ptx::wgmma_ss_f16<kAccumulate, S::kMajor>(d, a_shared, b);
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads) warpgroup_product(uint32_t* out) {
  if constexpr (ptx::kHasWgmma) {
    constexpr int kSteps = S::kDepth / 16;
    constexpr bool kOverwrites = S::kDepth == 64;
    const int thread = static_cast<int>(threadIdx.x);
    unsigned char* const shared = ptx::dynamic_shared();
    unsigned char* const right = shared + S::A::kBytes;
    fill<S, typename S::A>(shared, 1);
    fill<S, typename S::B>(right, 2);
    ptx::fence_proxy_async();
    __syncthreads();

    uint32_t a[kSteps][4];
    float d[S::kColumns / 8][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
        const auto [row, k] = tile::wgmma_k16_a(thread, e);
        const auto at = static_cast<uint32_t>(row * S::kDepth + 16 * step + k);
        a[step][e / 2] = pack<S>(small_number(3, at, kMost), small_number(3, at + 1, kMost));
      }
    }
#pragma unroll
    for (int i = 0; i < S::kColumns / 2; ++i) {
      const auto at = static_cast<uint32_t>(thread * S::kColumns / 2 + i);
      d[i / 4][i % 4] = kOverwrites ? NAN : small_number(4, at, 100);
    }
    ptx::warpgroup_pin(d);
    ptx::warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t left =
          tile::k_major_descriptor<typename S::A>(ptx::shared_address(shared), S::kFirstRow, step);
      uint64_t b;
      if constexpr (S::kMajor == Major::mn) {
        b = tile::mn_major_descriptor<typename S::B>(ptx::shared_address(right), step);
      } else {
        b = tile::k_major_descriptor<typename S::B>(ptx::shared_address(right), 0, step);
      }
      if (kOverwrites && step == 0) {
        multiply<S, Accumulate::overwrite>(d, a[step], left, b);
      } else {
        multiply<S, Accumulate::add>(d, a[step], left, b);
      }
    }
    ptx::warpgroup_commit();
    ptx::warpgroup_wait<0>();
    ptx::warpgroup_pin(d);
#pragma unroll
    for (int i = 0; i < S::kColumns / 2; ++i) {
      out[thread * S::kColumns / 2 + i] = __float_as_uint(d[i / 4][i % 4]);
    }
  }
}

template <class S>
void add(std::vector<Case>& cases) {
  const std::string name = std::string("wgmma_") + (S::kLeft == Left::registers ? "rs_" : "ss_") +
                           (S::kIsBf16 ? "bf16" : "f16") + " n" + std::to_string(S::kColumns) +
                           (S::kMajor == Major::mn ? " mn-major" : " k-major") + " depth " +
                           std::to_string(S::kDepth);
  cases.push_back({name, [] {
                     return words_of(
                         warpgroup_product<S>,
                         {.grid = dim3(1), .threads = kThreads, .shared_bytes = S::kBytes},
                         S::kWords);
                   }});
}

template <int kColumns, bool kIsBf16, Left kLeft>
void add_layouts(std::vector<Case>& cases) {
  add<Shape<kColumns, kIsBf16, kLeft, Major::k, 64>>(cases);
  add<Shape<kColumns, kIsBf16, kLeft, Major::k, 128>>(cases);
  add<Shape<kColumns, kIsBf16, kLeft, Major::mn, 64>>(cases);
  add<Shape<kColumns, kIsBf16, kLeft, Major::mn, 128>>(cases);
}

template <bool kIsBf16>
void add_type(std::vector<Case>& cases) {
  add_layouts<64, kIsBf16, Left::shared>(cases);
  add_layouts<128, kIsBf16, Left::shared>(cases);
  add_layouts<64, kIsBf16, Left::registers>(cases);
  add_layouts<96, kIsBf16, Left::registers>(cases);
  add_layouts<128, kIsBf16, Left::registers>(cases);
}

}  // namespace

std::vector<Case> warpgroup_cases() {
  std::vector<Case> cases;
  add_type<false>(cases);
  add_type<true>(cases);
  return cases;
}

}  // namespace flashcore::recorded
