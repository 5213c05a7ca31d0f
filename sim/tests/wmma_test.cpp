// nvcuda::wmma: registers as in tile/wmma_fragment.hpp, exact products, and warps that must meet.
#include <cuda_runtime.h>
#include <mma.h>

#include "cuda/tile/wmma_fragment.hpp"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

namespace wmma = nvcuda::wmma;

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}, .shared_bytes = 4096};

TEST(Wmma, RegistersAreThoseOfTheTable) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 8; ++r) {
      const auto a = cuda::tile::wmma_operand_a(lane, r);
      const auto b = cuda::tile::wmma_operand_b(lane, r);
      const auto c = cuda::tile::wmma_accumulator(lane, r);
      EXPECT_EQ(wmma::element_of<wmma::matrix_a>(lane, r), 16 * a.row + a.column);
      EXPECT_EQ(wmma::element_of<wmma::matrix_b>(lane, r), 16 * b.row + b.column);
      EXPECT_EQ(wmma::element_of<wmma::accumulator>(lane, r), 16 * c.row + c.column);
    }
  }
}

float left(int row, int k) { return static_cast<float>((row * 5 + k * 3) % 11 - 5); }
float right(int k, int column) { return static_cast<float>((k * 7 + column * 2) % 13 - 6); }

// D = A B + 1 through shared memory, B by rows or by columns.
template <class LayoutB>
void multiply_tile(bool faulty) {
  struct Shared {
    __half a[256], b[256];
    float d[256];
  };
  Shared& smem = *shared_array<Shared>();
  constexpr bool kByColumn = std::is_same_v<LayoutB, wmma::col_major>;
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) {
    smem.a[i] = left(i / 16, i % 16);
    smem.b[i] = kByColumn ? right(i % 16, i / 16) : right(i / 16, i % 16);
  }
  if (!faulty) __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, LayoutB> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> d;
  wmma::load_matrix_sync(a, smem.a, 16);
  wmma::load_matrix_sync(b, smem.b, 16);
  wmma::fill_fragment(d, 1.0F);
  wmma::mma_sync(d, a, b, d);
  wmma::store_matrix_sync(smem.d, d, 16, wmma::mem_row_major);
  __syncwarp();
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) {
    float sum = 1;
    for (int k = 0; k < 16; ++k) sum += left(i / 16, k) * right(k, i % 16);
    if (!faulty && load(smem.d[i]) != sum) __trap();
  }
}

TEST(Wmma, ProductsAreExactAndLoadsNeedABarrier) {
  expect_fault_only_in_first(Fault::race, kOneWarp, multiply_tile<wmma::row_major>);
  expect_fault_only_in_first(Fault::race, kOneWarp, multiply_tile<wmma::col_major>);
}

TEST(Wmma, ALaneThatStaysAway) {
  expect_fault_only_in_first(Fault::collective_without_lane, kOneWarp, [](bool faulty) {
    if (faulty && threadIdx.x == 7) return;
    multiply_tile<wmma::row_major>(false);
  });
}

}  // namespace
}  // namespace flashcore::sim
