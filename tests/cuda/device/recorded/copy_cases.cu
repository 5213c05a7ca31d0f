// Copies: tensor boxes with each swizzle, clipped and filled with zeros, stored, and sent to two
// blocks; words sent to another block; rows by cp.async.
#include <cudaTypedefs.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/async_copy.cuh"
#include "cuda/tile/smem_tile.hpp"
#include "recorded.hpp"

namespace flashcore::recorded {
namespace {

using namespace cuda;

constexpr uint32_t kThreads = 128;
constexpr int kRows = 40, kHeads = 3, kBatch = 2;  // of every tensor

struct Place {
  int column, row, head, batch;
};

__device__ uint32_t word_at(const unsigned char* shared, uint32_t i) {
  return reinterpret_cast<const uint32_t*>(shared)[i];
}

__device__ void open_barrier(uint32_t barrier, uint32_t bytes) {
  ptx::mbarrier_init(barrier, 1);
  ptx::mbarrier_init_fence();
  ptx::mbarrier_arrive_expect(barrier, bytes);
}

__global__ void box_load(const __grid_constant__ CUtensorMap map, Place at, uint32_t bytes,
                         uint32_t* out) {
  unsigned char* const shared = ptx::dynamic_shared();
  const uint32_t barrier = ptx::shared_address(&ptx::static_shared<uint64_t>());
  if (threadIdx.x == 0) {
    open_barrier(barrier, bytes);
    ptx::tma_load_4d(ptx::shared_address(shared), &map, barrier, at.column, at.row, at.head,
                     at.batch);
  }
  __syncthreads();
  ptx::mbarrier_wait(barrier, 0);
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += kThreads) out[i] = word_at(shared, i);
}

// The box's bytes are hashed ones. The tensor is what is looked at.
__global__ void box_store(const __grid_constant__ CUtensorMap map, Place at, uint32_t bytes,
                          uint32_t* out) {
  unsigned char* const shared = ptx::dynamic_shared();
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += kThreads) {
    reinterpret_cast<uint32_t*>(shared)[i] = hashed(31, i);
  }
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tma_store_4d(&map, ptx::shared_address(shared), at.column, at.row, at.head, at.batch);
    ptx::tma_store_commit();
    ptx::tma_store_wait_read<0>();
    out[0] = bytes;
  }
}

__global__ void __cluster_dims__(2, 1, 1) box_multicast(const __grid_constant__ CUtensorMap map,
                                                        Place at, uint32_t bytes, uint32_t* out) {
  unsigned char* const shared = ptx::dynamic_shared();
  const uint32_t barrier = ptx::shared_address(&ptx::static_shared<uint64_t>());
  if (threadIdx.x == 0) open_barrier(barrier, bytes);
  __syncthreads();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  if (blockIdx.x == 1 && threadIdx.x == 0) {
    ptx::tma_load_4d_multicast(ptx::shared_address(shared), &map, barrier, 3, at.column, at.row,
                               at.head, at.batch);
  }
  ptx::mbarrier_wait(barrier, 0);
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += kThreads) {
    out[blockIdx.x * (bytes / 4) + i] = word_at(shared, i);
  }
  __syncthreads();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

// Each thread sends 16, 8 and 4 bytes to the other block.
constexpr uint32_t kSentWords = kThreads * 7;
__global__ void __cluster_dims__(2, 1, 1) words_to_other_block(uint32_t* out) {
  unsigned char* const shared = ptx::dynamic_shared();
  const uint32_t barrier = ptx::shared_address(&ptx::static_shared<uint64_t>());
  if (threadIdx.x == 0) open_barrier(barrier, 4 * kSentWords);
  __syncthreads();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  const uint32_t other = 1 - blockIdx.x, thread = threadIdx.x;
  const uint32_t to = ptx::cluster_address(ptx::shared_address(shared), other);
  const uint32_t there = ptx::cluster_address(barrier, other);
  const auto x = [&](uint32_t i) { return hashed(32 + blockIdx.x, 7 * thread + i); };
  const uint32_t four[4] = {x(0), x(1), x(2), x(3)}, two[2] = {x(4), x(5)};
  ptx::store_async(to + 16 * thread, four, there);
  ptx::store_async(to + 16 * kThreads + 8 * thread, two, there);
  ptx::store_async(to + 24 * kThreads + 4 * thread, x(6), there);
  ptx::mbarrier_wait_cluster(barrier, 0);
  for (uint32_t i = thread; i < kSentWords; i += kThreads) {
    out[blockIdx.x * kSentWords + i] = word_at(shared, i);
  }
  __syncthreads();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

using RowTile = tile::SmemTile<64, 128, 2>;
__global__ void rows_by_cp_async(const unsigned char* matrix, uint32_t* out) {
  unsigned char* const shared = ptx::dynamic_shared();
  tile::copy_rows_async<RowTile, int{kThreads}>(shared, matrix, 512, 7, 60,
                                                static_cast<int>(threadIdx.x));
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < RowTile::kBytes / 4; i += kThreads) {
    out[i] = word_at(shared, i);
  }
}

// A tensor [batch, head, row, column] of hashed bytes, with 16 bytes or more between rows.
struct Tensor {
  CUtensorMapDataType type;
  int element_bytes, columns;

  int row_bytes() const { return (columns * element_bytes + 15) / 16 * 16 + 16; }
  size_t bytes() const {
    return size_t{kBatch} * kHeads * kRows * static_cast<size_t>(row_bytes());
  }
  std::vector<unsigned char> hashed_bytes(uint32_t stream) const {
    std::vector<unsigned char> all(bytes());
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = hashed_byte(stream, static_cast<uint32_t>(i));
    }
    return all;
  }
};

struct Box {
  int rows, row_bytes;
  CUtensorMapSwizzle swizzle;
  const char* name;
  uint32_t bytes() const { return static_cast<uint32_t>(rows * row_bytes); }
};

CUtensorMap encode(const Tensor& tensor, const Box& box, void* base) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                         &result));
  const auto encode_tiled = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry);
  const auto row = static_cast<cuuint64_t>(tensor.row_bytes());
  const cuuint64_t extents[4] = {static_cast<cuuint64_t>(tensor.columns), kRows, kHeads, kBatch};
  const cuuint64_t strides[3] = {row, row * kRows, row * kRows * kHeads};
  const cuuint32_t boxes[4] = {static_cast<cuuint32_t>(box.row_bytes / tensor.element_bytes),
                               static_cast<cuuint32_t>(box.rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap map{};
  if (encode_tiled == nullptr ||
      encode_tiled(&map, tensor.type, 4, base, extents, strides, boxes, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, box.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    throw std::runtime_error("no tensor map");
  }
  return map;
}

std::vector<uint32_t> as_words(const std::vector<unsigned char>& bytes) {
  std::vector<uint32_t> words(bytes.size() / 4);
  for (size_t i = 0; i < bytes.size(); ++i) words[i / 4] |= uint32_t{bytes[i]} << (8 * (i % 4));
  return words;
}

constexpr std::array<Tensor, 3> kTensors{{
    {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, 176},
    {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, 88},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 44},
}};
// Its rows end inside of 16 bytes.
constexpr Tensor kUnevenTensor{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, 85};
constexpr std::array<Box, 5> kBoxes{{
    {32, 128, CU_TENSOR_MAP_SWIZZLE_128B, "swizzle 128"},
    {32, 64, CU_TENSOR_MAP_SWIZZLE_64B, "swizzle 64"},
    {32, 32, CU_TENSOR_MAP_SWIZZLE_32B, "swizzle 32"},
    {32, 64, CU_TENSOR_MAP_SWIZZLE_NONE, "no swizzle"},
    {5, 128, CU_TENSOR_MAP_SWIZZLE_128B, "5 rows, swizzle 128"},
}};

// In units of 4 bytes, by the column's first number: inside, and past each end of each dimension.
constexpr std::array<Place, 8> kPlaces{{
    {0, 0, 0, 0},
    {4, 3, 2, 1},
    {20, 5, 1, 0},  // columns past the end
    {40, 2, 0, 1},  // the last columns
    {0, 30, 1, 0},  // rows past the end
    {0, 0, 3, 0},   // no such head
    {0, 60, 0, 2},  // no such rows and batch
    {44, 0, 1, 1},  // no such columns
}};
constexpr std::array<Place, 4> kPlacesBefore{{
    {-4, 0, 1, 1},  // columns before the first
    {8, -7, 0, 1},  // rows before the first
    {-12, -3, 1, 0},
    {0, 60, -1, 1},  // nothing of it
}};
// What a GPU refuses, in elements of 2 bytes: a column that is no multiple of 16 bytes, and in stores
// a negative coordinate.
constexpr std::array<Place, 5> kRefusedPlaces{{
    {4, 0, 0, 0},
    {-4, 0, 0, 0},
    {84, 2, 0, 1},
    {1, 3, 1, 0},
    {4, 60, 0, 2},  // nothing of it is inside
}};
constexpr std::array<Place, 5> kRefusedPlacesOfStores{{
    {4, 0, 0, 0},
    {-8, 0, 1, 1},
    {0, -1, 0, 0},
    {0, 0, -1, 0},
    {0, 0, 0, -1},
}};

std::string text_of(const Place& at) {
  return "at " + std::to_string(at.column) + "," + std::to_string(at.row) + "," +
         std::to_string(at.head) + "," + std::to_string(at.batch);
}

host::LaunchShape one_block(uint32_t shared_bytes) {
  return {.grid = dim3(1), .threads = kThreads, .shared_bytes = shared_bytes};
}
host::LaunchShape two_blocks(uint32_t shared_bytes) {
  return {.grid = dim3(2), .threads = kThreads, .shared_bytes = shared_bytes, .cluster = 2};
}

std::vector<uint32_t> loaded(const Tensor& tensor, const Box& box, const Place& at) {
  const DeviceArray<unsigned char> from(tensor.hashed_bytes(30));
  return words_of(box_load, one_block(box.bytes()), box.bytes() / 4,
                  encode(tensor, box, from.get()), at, box.bytes());
}

std::vector<uint32_t> stored(const Tensor& tensor, const Box& box, const Place& at) {
  const DeviceArray<unsigned char> to(tensor.hashed_bytes(33));
  (void)words_of(box_store, one_block(box.bytes()), 1, encode(tensor, box, to.get()), at,
                 box.bytes());
  return as_words(to.read());
}

std::vector<uint32_t> loaded_in_two_blocks(const Tensor& tensor, const Box& box, const Place& at) {
  const DeviceArray<unsigned char> from(tensor.hashed_bytes(30));
  return words_of(box_multicast, two_blocks(box.bytes()), box.bytes() / 2,
                  encode(tensor, box, from.get()), at, box.bytes());
}

std::vector<uint32_t> copied_rows() {
  std::vector<unsigned char> matrix(size_t{80} * 512);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = hashed_byte(34, static_cast<uint32_t>(i));
  }
  const DeviceArray<unsigned char> rows(matrix);
  return words_of(rows_by_cp_async, one_block(RowTile::kBytes), RowTile::kBytes / 4,
                  static_cast<const unsigned char*>(rows.get()));
}

void add_boxes(std::vector<Case>& cases, const Tensor& tensor, const Box& box) {
  const std::string what = std::to_string(tensor.element_bytes) + " bytes, " +
                           (tensor.columns == kUnevenTensor.columns ? "85 columns, " : "") +
                           box.name + ", ";
  const auto add = [&](Place at, bool is_store) {
    at.column = at.column * 4 / tensor.element_bytes;
    const std::string name = what + text_of(at);
    if (is_store) {
      cases.push_back({"store box, " + name, [=] { return stored(tensor, box, at); }});
    } else {
      cases.push_back({"load box, " + name, [=] { return loaded(tensor, box, at); }});
    }
  };
  for (const Place& at : kPlaces) {
    add(at, false);
    if (tensor.element_bytes == 2) add(at, true);
  }
  for (const Place& at : kPlacesBefore) add(at, false);
}

void add_refused(std::vector<Case>& cases) {
  const auto add = [&](const char* what, const Place& at, auto run) {
    const Tensor tensor = kTensors[1];
    const Box box = kBoxes[0];
    cases.push_back({std::string(what) + text_of(at), [=] { return run(tensor, box, at); }});
    cases.back().refused = true;
  };
  for (const Place& at : kRefusedPlaces) add("load box, refused, ", at, loaded);
  for (const Place& at : kRefusedPlacesOfStores) add("store box, refused, ", at, stored);
  add("load box in two blocks, refused, ", kRefusedPlaces[0], loaded_in_two_blocks);
}

}  // namespace

std::vector<Case> copy_cases() {
  std::vector<Case> cases;
  for (const Tensor& tensor : kTensors) {
    for (const Box& box : kBoxes) add_boxes(cases, tensor, box);
  }
  add_boxes(cases, kUnevenTensor, kBoxes[0]);
  cases.push_back({"load box in two blocks", [] {
                     return loaded_in_two_blocks(kTensors[1], kBoxes[0], {8, 20, 1, 1});
                   }});
  cases.push_back({"st.async", [] {
                     return words_of(words_to_other_block, two_blocks(4 * kSentWords),
                                     size_t{2} * kSentWords);
                   }});
  cases.push_back({"cp.async rows", copied_rows});
  add_refused(cases);
  return cases;
}

}  // namespace flashcore::recorded
