// wgmma and mma.sync: exact products in the layouts of tile/, and the rules of asynchrony.
#include "cuda/ptx/wgmma.cuh"

#include <cuda_runtime.h>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tf32.cuh"
#include "cuda/tile/byte_descriptor.hpp"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/fragment.hpp"
#include "cuda/tile/smem_tile.hpp"
#include "engine/number_formats.hpp"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;
using ptx::Accumulate, ptx::Major;

constexpr LaunchOptions kWarpgroup{.grid = {1}, .block = {128}, .shared_bytes = 81920};

// Small integers, different at every position: products are exact in every format.
float left(int row, int k) { return static_cast<float>((row * 5 + k * 3) % 11 - 5); }
float right(int k, int column) { return static_cast<float>((k * 7 + column * 2) % 13 - 6); }

float product(int row, int column, int depth) {
  float sum = 0;
  for (int k = 0; k < depth; ++k) sum += left(row, k) * right(k, column);
  return sum;
}

using Tile = tile::SmemTile<64, 64, 2>;
constexpr int whole_panels(int columns) { return (columns + 63) / 64 * 64; }
template <int kColumns>
using WideTile = tile::SmemTile<64, whole_panels(kColumns), 2>;

template <class SmemTile, class Value>
void fill(unsigned char* shared, bool is_bf16, Value value) {
  for (int i = static_cast<int>(threadIdx.x); i < SmemTile::kRows * SmemTile::kColumns; i += 128) {
    const int row = i / SmemTile::kColumns, column = i % SmemTile::kColumns;
    const float x = value(row, column);
    *reinterpret_cast<uint16_t*>(shared + SmemTile::offset(row, column)) =
        is_bf16 ? bf16_of(x) : f16_of(x);
  }
}

enum class ProductFault {
  none,
  not_awaited,
  not_committed,
  no_fence,
  fence_before_the_registers,
  no_proxy_fence,
  no_barrier,
  operand_overwritten,
  accumulator_written,
  left_register_written,
  descriptor_of_a_lane,
  misaligned_descriptor,
  left_in_flight,
  three_warps,
  beyond_shared_memory,
  other_shape,
};

// C = A B with A 64 x 64 and B 64 x kColumns, B stored by its columns (K-major, n rows of k) or by
// its rows (MN-major).
template <int kColumns, bool kIsBf16, bool kFromRegisters, Major kMajor>
void multiply_tiles(ProductFault fault) {
  using BTile = std::conditional_t<kMajor == Major::mn, WideTile<kColumns>,
                                   tile::SmemTile<whole_panels(kColumns), 64, 2>>;
  auto* const shared = shared_array<unsigned char>();
  unsigned char* const b = shared + Tile::kBytes;
  const int thread = static_cast<int>(threadIdx.x);
  fill<Tile>(shared, kIsBf16, left);
  fill<BTile>(b, kIsBf16, [](int row, int column) {
    return kMajor == Major::mn ? right(row, column) : right(column, row);
  });
  if (fault != ProductFault::no_proxy_fence) ptx::fence_proxy_async();
  if (fault != ProductFault::no_barrier) ptx::named_barrier_sync(1, 128);

  float d[kColumns / 8][4] = {};
  uint32_t a[4][4];
  for (int step = 0; step < 4; ++step) {
    for (int e = 0; e < 8; e += 2) {
      const auto [row, k] = tile::wgmma_k16_a(thread, e);
      const float x = left(row, 16 * step + k), y = left(row, 16 * step + k + 1);
      a[step][e / 2] = kIsBf16 ? ptx::pack_bf16x2(x, y) : ptx::pack_f16x2(x, y);
    }
  }
  if (fault != ProductFault::no_fence) ptx::warpgroup_fence();
  if (fault == ProductFault::fence_before_the_registers) a[0][0] = load(a[0][0]);
  for (int step = 0; step < 4; ++step) {
    if (fault == ProductFault::three_warps && thread >= 96) break;
    uint32_t b_address = ptx::shared_address(b);
    if (fault == ProductFault::misaligned_descriptor) b_address += 256;
    if (fault == ProductFault::beyond_shared_memory) b_address += 65536;
    uint64_t a_descriptor = tile::k_major_descriptor<Tile>(ptx::shared_address(shared), 0, step);
    if (fault == ProductFault::descriptor_of_a_lane && thread == 70) a_descriptor += 2;
    const uint64_t b_descriptor = kMajor == Major::mn
                                      ? tile::mn_major_descriptor<BTile>(b_address, step)
                                      : tile::k_major_descriptor<BTile>(b_address, 0, step);
    if constexpr (kFromRegisters && kIsBf16) {
      ptx::wgmma_rs_bf16<Accumulate::add, kMajor>(d, a[step], b_descriptor);
    } else if constexpr (kFromRegisters) {
      ptx::wgmma_rs_f16<Accumulate::add, kMajor>(d, a[step], b_descriptor);
    } else if constexpr (kIsBf16) {
      ptx::wgmma_ss_bf16<Accumulate::add, kMajor>(d, a_descriptor, b_descriptor);
    } else {
      ptx::wgmma_ss_f16<Accumulate::add, kMajor>(d, a_descriptor, b_descriptor);
    }
  }
  if (fault == ProductFault::other_shape) {
    auto& narrower = reinterpret_cast<float(&)[8][4]>(d[1]);
    const auto descriptor = tile::k_major_descriptor<Tile>(ptx::shared_address(shared), 0, 0);
    ptx::wgmma_ss_f16<Accumulate::add, Major::k>(narrower, descriptor, descriptor);
  }
  if (fault != ProductFault::not_committed) ptx::warpgroup_commit();
  if (fault == ProductFault::accumulator_written && thread == 5) d[2][1] = 1;
  if (fault == ProductFault::left_register_written && thread == 33) a[3][1] = 7;
  if (fault == ProductFault::operand_overwritten && thread == 90) b[64] = 1;
  if (fault == ProductFault::left_in_flight) return;
  if (fault != ProductFault::not_awaited) ptx::warpgroup_wait<0>();
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = tile::wgmma_c(thread, 4 * n + e);
      const float x = load(d[n][e]);
      if (fault == ProductFault::none && x != product(row, column, 64)) __trap();
    }
  }
  if (fault == ProductFault::not_awaited) ptx::warpgroup_wait<0>();
}

template <int kColumns, bool kIsBf16>
void expect_exact() {
  const auto none = ProductFault::none;
  expect_clean(kWarpgroup, [&] { multiply_tiles<kColumns, kIsBf16, false, Major::k>(none); });
  expect_clean(kWarpgroup, [&] { multiply_tiles<kColumns, kIsBf16, false, Major::mn>(none); });
  expect_clean(kWarpgroup, [&] { multiply_tiles<kColumns, kIsBf16, true, Major::k>(none); });
  expect_clean(kWarpgroup, [&] { multiply_tiles<kColumns, kIsBf16, true, Major::mn>(none); });
}

TEST(Wgmma, ProductsOf64ColumnsAreExact) {
  expect_exact<64, false>();
  expect_exact<64, true>();
}
TEST(Wgmma, ProductsOf96ColumnsAreExact) { expect_exact<96, false>(); }
TEST(Wgmma, ProductsThatEndInAPanelAreExact) {
  expect_exact<80, true>();
  expect_exact<112, false>();
  expect_exact<160, true>();
}
TEST(Wgmma, ProductsOf192ColumnsAreExact) { expect_exact<192, false>(); }
TEST(Wgmma, ProductsOf128ColumnsAreExact) { expect_exact<128, true>(); }

// A stored by its columns, B by its columns.
template <int kColumns, bool kIsBf16>
void multiply_columns() {
  using BTile = tile::SmemTile<kColumns, 64, 2>;
  auto* const shared = shared_array<unsigned char>();
  unsigned char* const b = shared + Tile::kBytes;
  fill<Tile>(shared, kIsBf16, [](int k, int row) { return left(row, k); });
  fill<BTile>(b, kIsBf16, [](int column, int k) { return right(k, column); });
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(1, 128);
  float d[kColumns / 8][4] = {};
  ptx::warpgroup_fence();
  for (int step = 0; step < 4; ++step) {
    const uint64_t a_at = tile::mn_major_descriptor<Tile>(ptx::shared_address(shared), step);
    const uint64_t b_at = tile::k_major_descriptor<BTile>(ptx::shared_address(b), 0, step);
    if constexpr (kIsBf16) {
      ptx::wgmma_ss_bf16<Accumulate::add, Major::k, Major::mn>(d, a_at, b_at);
    } else {
      ptx::wgmma_ss_f16<Accumulate::add, Major::k, Major::mn>(d, a_at, b_at);
    }
  }
  ptx::warpgroup_commit();
  ptx::warpgroup_wait<0>();
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = tile::wgmma_c(static_cast<int>(threadIdx.x), 4 * n + e);
      if (d[n][e] != product(row, column, 64)) __trap();
    }
  }
}

TEST(Wgmma, LeftOperandsByColumnsAreExact) {
  expect_clean(kWarpgroup, [] { multiply_columns<64, false>(); });
  expect_clean(kWarpgroup, [] { multiply_columns<96, true>(); });
}

struct Case {
  const char* name;
  ProductFault fault;
  std::vector<Fault> wanted;
};
class WgmmaFaults : public testing::TestWithParam<Case> {};

TEST_P(WgmmaFaults, AreFound) {
  expect_one_of(GetParam().wanted, kWarpgroup,
                [] { multiply_tiles<128, false, true, Major::k>(GetParam().fault); });
}
class WgmmaSharedFaults : public testing::TestWithParam<Case> {};
TEST_P(WgmmaSharedFaults, AreFound) {
  expect_one_of(GetParam().wanted, kWarpgroup,
                [] { multiply_tiles<128, false, false, Major::mn>(GetParam().fault); });
}

const auto kName = [](const auto& test) { return std::string(test.param.name); };

INSTANTIATE_TEST_SUITE_P(
    All, WgmmaFaults,
    testing::Values(
        Case{"NotAwaited", ProductFault::not_awaited, {Fault::register_in_flight}},
        Case{"NotCommitted", ProductFault::not_committed, {Fault::register_in_flight}},
        Case{"NoFence", ProductFault::no_fence, {Fault::missing_wgmma_fence}},
        Case{"FenceBeforeTheRegisters",
             ProductFault::fence_before_the_registers,
             {Fault::missing_wgmma_fence}},
        Case{"NoProxyFence", ProductFault::no_proxy_fence, {Fault::missing_proxy_fence}},
        Case{"NoBarrier",
             ProductFault::no_barrier,
             {Fault::race, Fault::read_of_unwritten_bytes, Fault::write_to_operand_in_use}},
        Case{"OperandOverwritten",
             ProductFault::operand_overwritten,
             {Fault::write_to_operand_in_use, Fault::race}},
        Case{"AccumulatorWritten", ProductFault::accumulator_written, {Fault::register_in_flight}},
        Case{"LeftRegisterWritten",
             ProductFault::left_register_written,
             {Fault::register_in_flight}},
        Case{"LeftInFlight", ProductFault::left_in_flight, {Fault::left_with_products_in_flight}},
        Case{"OtherShape", ProductFault::other_shape, {Fault::register_in_flight}}),
    kName);

INSTANTIATE_TEST_SUITE_P(All, WgmmaSharedFaults,
                         testing::Values(Case{"NoProxyFence",
                                              ProductFault::no_proxy_fence,
                                              {Fault::missing_proxy_fence}},
                                         Case{"DescriptorOfALane",
                                              ProductFault::descriptor_of_a_lane,
                                              {Fault::descriptor_not_uniform}},
                                         Case{"MisalignedDescriptor",
                                              ProductFault::misaligned_descriptor,
                                              {Fault::misaligned_descriptor}},
                                         Case{"ThreeWarps",
                                              ProductFault::three_warps,
                                              {Fault::divergent_warpgroup,
                                               Fault::warpgroup_incomplete}},
                                         Case{"BeyondSharedMemory",
                                              ProductFault::beyond_shared_memory,
                                              {Fault::outside_shared_memory}}),
                         kName);

// Two rounds: registers read between them need a fence before the next addition.
TEST(Wgmma, SecondRoundNeedsAFence) {
  expect_fault_only_in_first(Fault::missing_wgmma_fence, kWarpgroup, [](bool faulty) {
    auto* const shared = shared_array<unsigned char>();
    fill<Tile>(shared, false, left);
    ptx::fence_proxy_async();
    __syncthreads();
    float d[8][4] = {};
    const auto descriptor = tile::k_major_descriptor<Tile>(ptx::shared_address(shared), 0, 0);
    for (int round = 0; round < 2; ++round) {
      if (!faulty || round == 0) ptx::warpgroup_fence();
      ptx::wgmma_ss_f16<Accumulate::add, Major::k>(d, descriptor, descriptor);
      ptx::warpgroup_commit();
      ptx::warpgroup_wait<0>();
      if (load(d[1][1]) == 1e9F) __trap();
    }
  });
}

// A warp that finds something waits at its own instruction, as often as the others.
TEST(Wgmma, WaitIsOneInstructionOfTheWarpgroup) {
  expect_fault_only_in_first(Fault::divergent_warpgroup, kWarpgroup, [](bool faulty) {
    auto* const shared = shared_array<unsigned char>();
    fill<Tile>(shared, false, left);
    ptx::fence_proxy_async();
    __syncthreads();
    float d[8][4] = {};
    const auto descriptor = tile::k_major_descriptor<Tile>(ptx::shared_address(shared), 0, 0);
    ptx::warpgroup_fence();
    ptx::wgmma_ss_f16<Accumulate::add, Major::k>(d, descriptor, descriptor);
    ptx::warpgroup_commit();
    if (faulty && threadIdx.x / 32 == 2) {
      ptx::warpgroup_wait<0>();
    } else {
      ptx::warpgroup_wait<0>();
    }
  });
}

// The first product overwrites the registers.
TEST(Wgmma, Overwrite) {
  expect_clean(kWarpgroup, [] {
    auto* const shared = shared_array<unsigned char>();
    fill<Tile>(shared, false, left);
    ptx::fence_proxy_async();
    __syncthreads();
    float d[8][4];
    for (auto& four : d) {
      for (float& x : four) x = NAN;
    }
    const auto descriptor = tile::k_major_descriptor<Tile>(ptx::shared_address(shared), 0, 0);
    ptx::warpgroup_fence();
    ptx::wgmma_ss_f16<Accumulate::overwrite, Major::k>(d, descriptor, descriptor);
    ptx::warpgroup_commit();
    ptx::warpgroup_wait<0>();
    for (const auto& four : d) {
      for (const float& x : four) {
        if (!(load(x) > -1e6F)) __trap();
      }
    }
  });
}

template <class SmemTile, class Value>
void fill_bytes(unsigned char* shared, Value value) {
  for (int i = static_cast<int>(threadIdx.x); i < SmemTile::kRows * SmemTile::kColumns; i += 128) {
    const int row = i / SmemTile::kColumns, column = i % SmemTile::kColumns;
    shared[SmemTile::offset(row, column)] = e4m3_of(value(row, column));
  }
}

// C = A B twice, where the second product overwrites, with k of kDepth, B stored by its columns.
template <int kColumns, int kDepth, bool kFromRegisters>
void multiply_byte_tiles() {
  using ATile = tile::SmemTile<64, kDepth, 1>;
  using BTile = tile::SmemTile<kColumns, kDepth, 1>;
  auto* const shared = shared_array<unsigned char>();
  unsigned char* const b = shared + ATile::kBytes;
  const int thread = static_cast<int>(threadIdx.x);
  fill_bytes<ATile>(shared, left);
  fill_bytes<BTile>(b, [](int row, int column) { return right(column, row); });
  ptx::fence_proxy_async();
  ptx::named_barrier_sync(1, 128);
  constexpr int kSteps = kDepth / 32;
  float d[kColumns / 8][4] = {};
  uint32_t a[kSteps][4];
  for (int step = 0; step < kSteps; ++step) {
    for (int e = 0; e < 16; e += 4) {
      const auto [row_in_warp, k] = tile::mma_k32_a(thread % 32, e);
      const int row = 16 * (thread / 32) + row_in_warp, first = 32 * step + k;
      a[step][e / 4] = ptx::pack_e4m3x4(left(row, first), left(row, first + 1),
                                        left(row, first + 2), left(row, first + 3));
    }
  }
  ptx::warpgroup_fence();
  for (int i = 0; i < 2 * kSteps; ++i) {
    const int step = i % kSteps;
    const auto accumulate = step == 0 ? Accumulate::overwrite : Accumulate::add;
    const uint64_t right_operand =
        tile::byte_descriptor<BTile>(ptx::shared_address(b)) + (tile::byte_step<BTile>(step) >> 4);
    if constexpr (kFromRegisters) {
      ptx::wgmma_rs_e4m3(d, a[step], right_operand, accumulate);
    } else {
      const uint64_t left_operand = tile::byte_descriptor<ATile>(ptx::shared_address(shared)) +
                                    (tile::byte_step<ATile>(step) >> 4);
      ptx::wgmma_ss_e4m3(d, left_operand, right_operand, accumulate);
    }
  }
  ptx::warpgroup_commit();
  ptx::warpgroup_wait<0>();
  for (int n = 0; n < kColumns / 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = tile::wgmma_c(thread, 4 * n + e);
      if (load(d[n][e]) != product(row, column, kDepth)) __trap();
    }
  }
}

TEST(Wgmma, ProductsOfE4m3AreExact) {
  expect_clean(kWarpgroup, [] { multiply_byte_tiles<128, 64, false>(); });
  expect_clean(kWarpgroup, [] { multiply_byte_tiles<128, 128, false>(); });
  expect_clean(kWarpgroup, [] { multiply_byte_tiles<72, 128, true>(); });
  expect_clean(kWarpgroup, [] { multiply_byte_tiles<136, 128, true>(); });
}

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}};

TEST(Mma, ProductsOf16BitsAreExact) {
  expect_clean(kOneWarp, [] {
    const int lane = static_cast<int>(threadIdx.x);
    for (const bool is_bf16 : {false, true}) {
      const auto pack = [&](float x, float y) {
        return is_bf16 ? ptx::pack_bf16x2(x, y) : ptx::pack_f16x2(x, y);
      };
      uint32_t a[4], b[2];
      for (int e = 0; e < 8; e += 2) {
        const auto [row, k] = tile::mma_k16_a(lane, e);
        a[e / 2] = pack(left(row, k), left(row, k + 1));
      }
      for (int e = 0; e < 4; e += 2) {
        const auto [k, column] = tile::mma_k16_b(lane, e);
        b[e / 2] = pack(right(k, column), right(k + 1, column));
      }
      float d[4] = {1, 1, 1, 1};
      if (is_bf16) {
        ptx::mma_m16n8k16_bf16(d, a, b[0], b[1]);
      } else {
        ptx::mma_m16n8k16_f16(d, a, b[0], b[1]);
      }
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = tile::mma_c(lane, e);
        if (d[e] != 1 + product(row, column, 16)) __trap();
      }
    }
  });
}

TEST(Mma, ProductsOfE4m3AreExact) {
  expect_clean(kOneWarp, [] {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t a[4], b[2];
    for (int e = 0; e < 16; e += 4) {
      const auto [row, k] = tile::mma_k32_a(lane, e);
      a[e / 4] =
          ptx::pack_e4m3x4(left(row, k), left(row, k + 1), left(row, k + 2), left(row, k + 3));
    }
    for (int e = 0; e < 8; e += 4) {
      const auto [k, column] = tile::mma_k32_b(lane, e);
      b[e / 4] = ptx::pack_e4m3x4(right(k, column), right(k + 1, column), right(k + 2, column),
                                  right(k + 3, column));
    }
    float d[4] = {};
    ptx::mma_m16n8k32_e4m3(d, a, b[0], b[1]);
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = tile::mma_c(lane, e);
      if (d[e] != product(row, column, 32)) __trap();
    }
  });
}

TEST(Mma, ProductsOfTf32AreExact) {
  expect_clean(kOneWarp, [] {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    const float a[4] = {left(g, t), left(g + 8, t), left(g, t + 4), left(g + 8, t + 4)};
    float d[4] = {};
    ptx::mma_m16n8k8_tf32(d, a, right(t, g), right(t + 4, g));
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = tile::mma_c(lane, e);
      if (d[e] != product(row, column, 8)) __trap();
    }
  });
}

}  // namespace
}  // namespace flashcore::sim
