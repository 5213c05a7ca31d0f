// Tensor copies: layouts against tile/smem_tile.hpp, clipping, zero fill, and requirements of stores.
#include <cuda_runtime.h>

#include <array>

#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/smem_tile.hpp"
#include "tests/support.hpp"
#include "tests/tensor_maps.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}, .shared_bytes = 40960};

uint64_t& barrier_of(unsigned char* shared) { return *reinterpret_cast<uint64_t*>(shared + 32768); }

// One thread loads boxes at (row, column + i * box columns); all wait.
void load_boxes(const CUtensorMap& map, int boxes, int box_columns, uint32_t box_bytes, int column,
                int row) {
  auto* const shared = shared_array<unsigned char>();
  const uint32_t barrier = ptx::shared_address(&barrier_of(shared));
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
    ptx::mbarrier_arrive_expect(barrier, static_cast<uint32_t>(boxes) * box_bytes);
    for (int i = 0; i < boxes; ++i) {
      ptx::tma_load_4d(ptx::shared_address(shared) + static_cast<uint32_t>(i) * box_bytes, &map,
                       barrier, column + i * box_columns, row, 0, 0);
    }
  }
  __syncwarp();
  ptx::mbarrier_wait(barrier, 0);
}

template <class Tile>
void expect_tile() {
  Matrix matrix(Tile::kRows + 8, Tile::kColumns, Tile::kElementBytes);
  const CUtensorMap map = matrix.map(Tile::kRows, Tile::kPanelColumns, Tile::kPanelRowBytes);
  expect_clean(kOneWarp, [&] {
    load_boxes(map, Tile::kPanels, Tile::kPanelColumns, Tile::kPanelBytes, 0, 3);
    if (threadIdx.x != 0) return;
    for (int row = 0; row < Tile::kRows; ++row) {
      for (int byte = 0; byte < Tile::kRowBytes; ++byte) {
        const int column = byte / Tile::kElementBytes, part = byte % Tile::kElementBytes;
        const auto at = Tile::offset(row, column) + static_cast<uint32_t>(part);
        const auto wanted =
            matrix.bytes[static_cast<size_t>((row + 3) * matrix.row_bytes() + byte)];
        if (load(shared_array<unsigned char>()[at]) != wanted) __trap();
      }
    }
  });
}

TEST(TensorCopy, BoxesAreTheTilesOfKernels) {
  expect_tile<tile::SmemTile<64, 64, 2>>();
  expect_tile<tile::SmemTile<64, 128, 2>>();
  expect_tile<tile::SmemTile<128, 64, 2>>();
  expect_tile<tile::SmemTile<64, 64, 1>>();
  expect_tile<tile::SmemTile<64, 128, 1>>();
  expect_tile<tile::SmemTile<64, 32, 2>>();
}

// Rows before and after the tensor, and columns past its end, are zero.
TEST(TensorCopy, OutsideOfTheTensorIsZero) {
  using Tile = tile::SmemTile<16, 64, 2>;
  Matrix matrix(10, 40, 2);
  const CUtensorMap map = matrix.map(Tile::kRows, Tile::kPanelColumns, 128);
  for (const int first : {-4, 0, 3}) {
    expect_clean(kOneWarp, [&] {
      load_boxes(map, 1, 64, Tile::kBytes, 0, first);
      if (threadIdx.x != 0) return;
      for (int row = 0; row < Tile::kRows; ++row) {
        for (int byte = 0; byte < 128; ++byte) {
          const int r = row + first;
          const bool inside = r >= 0 && r < 10 && byte < 80;
          const int wanted = inside ? matrix.bytes[static_cast<size_t>(r * 80 + byte)] : 0;
          const auto at = Tile::offset(row, byte / 2) + static_cast<uint32_t>(byte % 2);
          if (load(shared_array<unsigned char>()[at]) != wanted) __trap();
        }
      }
    });
  }
}

TEST(TensorCopy, NobodyWroteTheMap) {
  Matrix matrix(64, 64, 2);
  const CUtensorMap good = matrix.map(64, 64, 128);
  const CUtensorMap bad{};
  expect_clean(kOneWarp, [&] { load_boxes(good, 1, 64, 8192, 0, 0); });
  expect_fault(Fault::no_tensor_map, kOneWarp, [&] { load_boxes(bad, 1, 64, 8192, 0, 0); });
}

TEST(TensorCopy, NobodyWroteTheMapThatIsFetchedAhead) {
  Matrix matrix(64, 64, 2);
  const CUtensorMap good = matrix.map(64, 64, 128);
  const CUtensorMap bad{};
  expect_fault_only_in_first(Fault::no_tensor_map, kOneWarp, [&](bool faulty) {
    if (threadIdx.x == 0) ptx::prefetch_tensor_map(faulty ? &bad : &good);
  });
}

TEST(TensorCopy, SwizzleNeedsAlignment) {
  Matrix matrix(8, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128);
  expect_fault_only_in_first(Fault::misaligned_copy, kOneWarp, [&](bool faulty) {
    const uint32_t barrier = ptx::shared_address(&barrier_of(shared_array<unsigned char>()));
    if (threadIdx.x != 0) return;
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
    ptx::mbarrier_arrive_expect(barrier, 1024);
    const uint32_t to = ptx::shared_address(shared_array<char>()) + (faulty ? 512 : 1024);
    ptx::tma_load_4d(to, &map, barrier, 0, 0, 0, 0);
    ptx::mbarrier_wait(barrier, 0);
  });
}

// Also if the box is entirely outside of the tensor.
TEST(TensorCopy, LoadsBeginAtAMultipleOf16Bytes) {
  for (const int element_bytes : {1, 2, 4}) {
    Matrix matrix(8, 128 / element_bytes, element_bytes);
    const CUtensorMap map = matrix.map(8, 128 / element_bytes, 128);
    const int step = 16 / element_bytes;
    for (const int row : {0, 60}) {
      for (const int column : {step, -step}) {
        expect_clean(kOneWarp, [&] { load_boxes(map, 1, 0, 1024, column, row); });
      }
      for (const int column : {1, step / 2, 3 * step / 2, -step / 2, -1}) {
        expect_fault(Fault::misaligned_copy, kOneWarp,
                     [&] { load_boxes(map, 1, 0, 1024, column, row); });
      }
    }
  }
}

// A box of zeros.
void store_box_at(const CUtensorMap& map, const std::array<int, 4>& at) {
  auto* const shared = shared_array<uint32_t>();
  for (uint32_t i = threadIdx.x; i < 256; i += 32) shared[i] = 0;
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x != 0) return;
  ptx::tma_store_4d(&map, ptx::shared_address(shared), at[0], at[1], at[2], at[3]);
  ptx::tma_store_commit();
  ptx::tma_store_wait_read<0>();
}

TEST(TensorCopy, StoresBeginAtAMultipleOf16Bytes) {
  Matrix matrix(8, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128);
  expect_fault_only_in_first(Fault::misaligned_copy, kOneWarp, [&](bool faulty) {
    store_box_at(map, {faulty ? 4 : 8, 0, 0, 0});
  });
}

TEST(TensorCopy, StoresBeginInsideOfTheTensorOrBehindIt) {
  Matrix matrix(8, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128);
  for (size_t dimension = 0; dimension < 4; ++dimension) {
    expect_fault_only_in_first(Fault::store_before_tensor, kOneWarp, [&](bool faulty) {
      std::array<int, 4> at{};
      at[dimension] = faulty ? -8 : 8;
      store_box_at(map, at);
    });
  }
}

TEST(TensorCopy, LeftBeforeTheCopyCame) {
  Matrix matrix(8, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128);
  const auto kernel = [&](bool faulty) {
    const uint32_t barrier = ptx::shared_address(&barrier_of(shared_array<unsigned char>()));
    if (threadIdx.x != 0) return;
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
    ptx::mbarrier_arrive_expect(barrier, 1024);
    ptx::tma_load_4d(ptx::shared_address(shared_array<char>()), &map, barrier, 0, 0, 0, 0);
    if (!faulty) ptx::mbarrier_wait(barrier, 0);
  };
  expect_clean(kOneWarp, [&] { kernel(false); });
  // A copy that completes at once leaves nothing behind.
  expect_fault_in_some_order(Fault::left_with_copies_in_flight, kOneWarp, [&] { kernel(true); });
}

enum class StoreFault {
  none,
  no_proxy_fence,
  fence_after_the_barrier,
  no_barrier,
  overwritten_before_it_was_read,
  not_awaited
};

// The warp writes a tile, one thread stores it, and the warp writes the next.
void store_tiles(const CUtensorMap& map, StoreFault fault) {
  using Tile = tile::SmemTile<8, 64, 2>;
  auto* const shared = shared_array<unsigned char>();
  for (int tile = 0; tile < 2; ++tile) {
    const auto wait_read = [&] {
      if (threadIdx.x == 0) ptx::tma_store_wait_read<0>();
    };
    if (tile > 0 && fault != StoreFault::overwritten_before_it_was_read) {
      wait_read();
      __syncwarp();
    }
    for (int i = static_cast<int>(threadIdx.x); i < 8 * 64; i += 32) {
      *reinterpret_cast<uint16_t*>(shared + Tile::offset(i / 64, i % 64)) =
          static_cast<uint16_t>(1000 * tile + i);
    }
    if (fault != StoreFault::no_proxy_fence && fault != StoreFault::fence_after_the_barrier) {
      ptx::fence_proxy_async();
    }
    if (fault != StoreFault::no_barrier) __syncwarp();
    if (fault == StoreFault::fence_after_the_barrier) ptx::fence_proxy_async();
    if (threadIdx.x == 0) {
      ptx::tma_store_4d(&map, ptx::shared_address(shared), 0, 8 * tile, 0, 0);
      ptx::tma_store_commit();
    }
  }
  if (threadIdx.x == 0 && fault != StoreFault::not_awaited) ptx::tma_store_wait_read<0>();
}

TEST(TensorCopy, Stores) {
  for (const Policy& policy : policies()) {
    Matrix matrix(13, 40, 2);  // smaller than two boxes: data outside is unchanged
    matrix.bytes.assign(matrix.bytes.size(), 0);
    const CUtensorMap map = matrix.map(8, 64, 128);
    EXPECT_EQ(run(kOneWarp, policy, [&] { store_tiles(map, StoreFault::none); }).text(), "");
    for (int row = 0; row < 13; ++row) {
      for (int column = 0; column < 40; ++column) {
        uint16_t x;
        std::memcpy(&x, &matrix.bytes[static_cast<size_t>(80 * row + 2 * column)], 2);
        EXPECT_EQ(x, 1000 * (row / 8) + row % 8 * 64 + column);
      }
    }
  }
}

// If a row ends inside of 16 bytes, the bytes behind it are overwritten, as on an H200.
TEST(TensorCopy, StoresEndAtAMultipleOf16Bytes) {
  Matrix matrix(8, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128, 37);
  for (const Policy& policy : policies()) {
    matrix.bytes.assign(matrix.bytes.size(), 1);
    EXPECT_EQ(run(kOneWarp, policy, [&] { store_box_at(map, {}); }).text(), "");
    for (size_t i = 0; i < matrix.bytes.size(); ++i) {
      ASSERT_EQ(matrix.bytes[i], i % 128 < 80 ? 0 : 1) << "byte " << i;
    }
  }
}

TEST(TensorCopy, FaultsOfStores) {
  Matrix matrix(16, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128);
  const auto expect = [&](StoreFault fault, const std::vector<Fault>& wanted) {
    expect_one_of(wanted, kOneWarp, [&] { store_tiles(map, fault); });
  };
  expect(StoreFault::no_proxy_fence, {Fault::missing_proxy_fence});
  expect(StoreFault::fence_after_the_barrier, {Fault::missing_proxy_fence});
  expect(StoreFault::no_barrier, {Fault::race, Fault::read_of_unwritten_bytes});
  expect(StoreFault::overwritten_before_it_was_read, {Fault::write_to_operand_in_use});
  expect(StoreFault::not_awaited, {Fault::left_with_stores_unread});
}

// Each lane adds to the first row of a tile, then one thread stores it.
TEST(TensorCopy, StoreOfWhatAtomicOperationsWrote) {
  Matrix matrix(8, 64, 2);
  const CUtensorMap map = matrix.map(8, 64, 128);
  const auto kernel = [&](bool faulty) {
    auto* const shared = shared_array<int>();
    for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) shared[i] = 0;
    ptx::fence_proxy_async();
    __syncwarp();
    atomicAdd(&shared[threadIdx.x], 1);
    ptx::fence_proxy_async();
    if (!faulty) __syncwarp();
    if (threadIdx.x != 0) return;
    ptx::tma_store_4d(&map, ptx::shared_address(shared), 0, 0, 0, 0);
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
  };
  expect_clean(kOneWarp, [&] { kernel(false); });
  // Depending on the order, the store or the operation comes first.
  expect_one_of({Fault::race, Fault::write_to_operand_in_use}, kOneWarp, [&] { kernel(true); });
}

}  // namespace
}  // namespace flashcore::sim
