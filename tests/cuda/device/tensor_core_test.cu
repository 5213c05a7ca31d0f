// The instruction wrappers on the device, with random data: each product against a plain one, with
// operands placed by the maps of tile/fragment.hpp, and by TMA and descriptors for wgmma.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "cuda/host/launch_kernel.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/descriptor.hpp"
#include "cuda/tile/fragment.hpp"
#include "cuda/tile/smem_tile.hpp"

namespace flashcore::cuda {
namespace {

using tile::Cell;

int compute_capability() {
  int count = 0, major = 0, minor = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return 10 * major + minor;
}

// Small integers: exact in every type and in every order of addition.
template <class Element>
std::vector<Element> random_integers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> value(-7, 7);
  std::vector<Element> result(count);
  for (Element& x : result) x = Element(static_cast<float>(value(random)));
  return result;
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& host) : size_(host.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* get() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> result(size_);
    EXPECT_EQ(cudaMemcpy(result.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return result;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

// d[row][column] = sum over k of a[row][k] * b[k][column], strides in elements.
template <class Element>
void expect_product(const std::vector<float>& d, const std::vector<Element>& a,
                    const std::vector<Element>& b, int rows, int columns, int depth, int b_k_stride,
                    int b_column_stride) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      float want = 0;
      for (int k = 0; k < depth; ++k) {
        want +=
            static_cast<float>(a[static_cast<size_t>(row * depth + k)]) *
            static_cast<float>(b[static_cast<size_t>(k * b_k_stride + column * b_column_stride)]);
      }
      ASSERT_EQ(d[static_cast<size_t>(row * columns + column)], want) << row << ", " << column;
    }
  }
}

template <class Element>
struct Words {  // an operand's registers as elements
  union {
    uint32_t word[4];
    Element element[16 / sizeof(Element)];
  };
  __device__ Words() : word{} {}
};

template <class Element>
__global__ void warp_product(const Element* a, const Element* b, float* d) {
  constexpr bool kBytes = sizeof(Element) == 1;
  constexpr int kDepth = kBytes ? 32 : 16;
  const int lane = static_cast<int>(threadIdx.x);
  Words<Element> ra, rb;
  for (int e = 0; e < (kBytes ? 16 : 8); ++e) {
    const Cell at = kBytes ? tile::mma_k32_a(lane, e) : tile::mma_k16_a(lane, e);
    ra.element[e] = a[at.row * kDepth + at.column];
  }
  for (int e = 0; e < (kBytes ? 8 : 4); ++e) {
    const Cell at = kBytes ? tile::mma_k32_b(lane, e) : tile::mma_k16_b(lane, e);
    rb.element[e] = b[at.row * 8 + at.column];
  }
  float rd[4] = {};
  if constexpr (kBytes) {
    if constexpr (ptx::kHasE4m3Products) {
      ptx::mma_m16n8k32_e4m3(rd, ra.word, rb.word[0], rb.word[1]);
    }
  } else if constexpr (std::is_same_v<Element, __half>) {
    ptx::mma_m16n8k16_f16(rd, ra.word, rb.word[0], rb.word[1]);
  } else {
    ptx::mma_m16n8k16_bf16(rd, ra.word, rb.word[0], rb.word[1]);
  }
  for (int e = 0; e < 4; ++e) {
    const Cell at = tile::mma_c(lane, e);
    d[at.row * 8 + at.column] = rd[e];
  }
}

template <class Element>
void check_warp_product(int needed) {
  if (compute_capability() < needed) GTEST_SKIP() << "needs sm_" << needed;
  constexpr int kDepth = sizeof(Element) == 1 ? 32 : 16;
  const auto a = random_integers<Element>(16 * kDepth, 1),
             b = random_integers<Element>(kDepth * 8, 2);
  const DeviceArray<Element> da(a), db(b);
  const DeviceArray<float> dd(std::vector<float>(16 * 8, -1.0F));
  ASSERT_EQ(host::launch_kernel(&warp_product<Element>, {.grid = dim3(1), .threads = 32}, nullptr,
                                da.get(), db.get(), dd.get()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  expect_product(dd.host(), a, b, 16, 8, kDepth, 8, 1);
}

TEST(TensorCore, HalfProduct) { check_warp_product<__half>(80); }
TEST(TensorCore, Bfloat16Product) { check_warp_product<__nv_bfloat16>(80); }
TEST(TensorCore, E4m3Product) { check_warp_product<__nv_fp8_e4m3>(89); }

using Matrices = tile::SmemTile<64, 64, 2>;

// Rows row..row+15 of a tile by ldmatrix, plain and transposed, as what the maps call A and B.
__global__ void read_fragments(const uint16_t* matrix, uint16_t* plain, uint16_t* transposed) {
  auto& shared = ptx::static_shared<unsigned char[Matrices::kBytes], tile::kTileAlignment>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 64 * 64; i += 32) {
    *reinterpret_cast<uint16_t*>(shared + Matrices::offset(i / 64, i % 64)) = matrix[i];
  }
  __syncwarp();
  const uint32_t base = ptx::shared_address(shared);
  for (int block = 0; block < 16; ++block) {  // of 16 x 16
    const uint32_t row =
        base + Matrices::advance<2>(Matrices::chunk_offset(block / 4 * 16 + lane % 16, lane / 16),
                                    block % 4);
    Words<uint16_t> a, b;
    ptx::ldmatrix_x4(a.word, row);
    ptx::ldmatrix_x4_trans(b.word, row);
    for (int e = 0; e < 8; ++e) {
      plain[(block * 32 + lane) * 8 + e] = a.element[e];
      transposed[(block * 32 + lane) * 8 + e] = b.element[e];
    }
  }
}

TEST(TensorCore, LdmatrixFollowsTheMaps) {
  if (compute_capability() < 80) GTEST_SKIP() << "needs sm_80";
  std::vector<uint16_t> matrix(64 * 64);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>(i);
  const DeviceArray<uint16_t> input(matrix), plain(matrix), transposed(matrix);
  ASSERT_EQ(host::launch_kernel(&read_fragments, {.grid = dim3(1), .threads = 32}, nullptr,
                                input.get(), plain.get(), transposed.get()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto a = plain.host(), b = transposed.host();
  for (int block = 0; block < 16; ++block) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int e = 0; e < 8; ++e) {
        const auto value = [&](int row, int column) {
          return (block / 4 * 16 + row) * 64 + block % 4 * 16 + column;
        };
        const size_t at = static_cast<size_t>((block * 32 + lane) * 8 + e);
        const Cell in_a = tile::mma_k16_a(lane, e), in_b = tile::mma_k16_b(lane, e % 4);
        EXPECT_EQ(a[at], value(in_a.row, in_a.column));
        EXPECT_EQ(b[at], value(in_b.row, 8 * (e / 4) + in_b.column));  // two products side by side
      }
    }
  }
}

// S = Q K^T by "ss" with K-major operands, or O = P V by "rs" with V MN-major; Q, K and V by TMA.
// Q is 64 x kHeadDim; K and V are kv_rows of kKeys x kHeadDim, the rest being outside the tensor.
// Tiles are whole panels wide.
constexpr int whole_panels(int columns) { return (columns + 63) / 64 * 64; }

struct Maps {
  CUtensorMap q, kv;
};

template <int kHeadDim, bool kRegisters, int kKeys>
__global__ void warpgroup_product(const __grid_constant__ Maps maps, const __half* p, float* d) {
  if constexpr (ptx::kHasWgmma) {
    using QTile = tile::SmemTile<64, whole_panels(kHeadDim), 2>;
    using KvTile = tile::SmemTile<kKeys, whole_panels(kHeadDim), 2>;
    unsigned char* const shared = ptx::dynamic_shared();
    uint64_t& full = ptx::static_shared<uint64_t>();
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t q = ptx::shared_address(shared), kv = q + QTile::kBytes;
    const uint32_t barrier = ptx::shared_address(&full);
    if (thread == 0) {
      ptx::mbarrier_init(barrier, 1);
      ptx::mbarrier_init_fence();
      ptx::mbarrier_arrive_expect(barrier, QTile::kBytes + KvTile::kBytes);
      for (int panel = 0; panel < QTile::kPanels; ++panel) {
        ptx::tma_load_4d(q + panel * QTile::kPanelBytes, &maps.q, barrier, 64 * panel, 0, 1, 1);
        ptx::tma_load_4d(kv + panel * KvTile::kPanelBytes, &maps.kv, barrier, 64 * panel, 0, 1, 1);
      }
    }
    __syncthreads();
    ptx::mbarrier_wait(barrier, 0);
    constexpr int kColumns = kRegisters ? kHeadDim : kKeys;
    float accumulator[kColumns / 8][4] = {};
    ptx::warpgroup_pin(accumulator);
    ptx::warpgroup_fence();
    if constexpr (kRegisters) {
      for (int step = 0; step < kKeys / 16; ++step) {
        Words<__half> a;
        for (int e = 0; e < 8; ++e) {
          const Cell at = tile::wgmma_k16_a(thread, e);
          a.element[e] = p[at.row * kKeys + 16 * step + at.column];
        }
        ptx::warpgroup_fence();
        ptx::wgmma_rs_f16<ptx::Accumulate::add, ptx::Major::mn>(
            accumulator, a.word, tile::mn_major_descriptor<KvTile>(kv, step));
        ptx::warpgroup_commit();
        ptx::warpgroup_wait<0>();
      }
    } else {
      for (int step = 0; step < kHeadDim / 16; ++step) {
        ptx::wgmma_ss_f16<ptx::Accumulate::add, ptx::Major::k>(
            accumulator, tile::k_major_descriptor<QTile>(q, 0, step),
            tile::k_major_descriptor<KvTile>(kv, 0, step));
      }
      ptx::warpgroup_commit();
      ptx::warpgroup_wait<0>();
    }
    ptx::warpgroup_pin(accumulator);
    for (int e = 0; e < kColumns / 2; ++e) {
      const Cell at = tile::wgmma_c(thread, e);
      d[at.row * kColumns + at.column] = accumulator[e / 4][e % 4];
    }
  }
}

template <int kHeadDim, bool kRegisters, int kKeys = 128>
void check_warpgroup_product(int kv_rows) {
  if (compute_capability() != 90) GTEST_SKIP() << "needs sm_90a";
  // A [2, 2, rows, kHeadDim] tensor each. (1, 1) is read; other numbers lie next to it.
  const auto q_all = random_integers<__half>(size_t{4} * 64 * kHeadDim, 3);
  const auto kv_all = random_integers<__half>(static_cast<size_t>(4 * kv_rows * kHeadDim), 4);
  const auto p = random_integers<__half>(64 * kKeys, 5);
  const DeviceArray<__half> dq(q_all), dkv(kv_all), dp(p);
  constexpr int kColumns = kRegisters ? kHeadDim : kKeys;
  const DeviceArray<float> dd(std::vector<float>(64 * kColumns, -1.0F));
  const auto layout = [](int64_t rows) {
    return host::TensorLayout{2, 2, rows, kHeadDim, 2 * rows * kHeadDim, rows * kHeadDim, kHeadDim};
  };
  Maps maps{};
  ASSERT_EQ(host::encode_tensor_map(maps.q, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, dq.get(), layout(64),
                                    64, 64),
            cudaSuccess);
  ASSERT_EQ(host::encode_tensor_map(maps.kv, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, dkv.get(),
                                    layout(kv_rows), kKeys, 64),
            cudaSuccess);
  const auto kernel = warpgroup_product<kHeadDim, kRegisters, kKeys>;
  constexpr int kShared = (64 + kKeys) * whole_panels(kHeadDim) * 2;
  ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
            cudaSuccess);
  ASSERT_EQ(host::launch_kernel(kernel, {.grid = dim3(1), .threads = 128, .shared_bytes = kShared},
                                nullptr, maps, dp.get(), dd.get()),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  const std::vector<__half> q(q_all.end() - 64 * kHeadDim, q_all.end());
  std::vector<__half> kv(kv_all.end() - kv_rows * kHeadDim, kv_all.end());
  kv.resize(static_cast<size_t>(kKeys * kHeadDim), __half(0.0F));  // rows outside read as zero
  if (kRegisters) {
    expect_product(dd.host(), p, kv, 64, kHeadDim, kKeys, kHeadDim, 1);
  } else {
    expect_product(dd.host(), q, kv, 64, kKeys, kHeadDim, 1, kHeadDim);
  }
}

TEST(TensorCore, WarpgroupScores) {
  check_warpgroup_product<64, false>(128);
  check_warpgroup_product<128, false>(128);
  check_warpgroup_product<128, false>(77);
  check_warpgroup_product<96, false>(128);
  check_warpgroup_product<192, false, 112>(112);
  check_warpgroup_product<80, false, 96>(77);
}

TEST(TensorCore, WarpgroupOutput) {
  check_warpgroup_product<64, true>(128);
  check_warpgroup_product<128, true>(128);
  check_warpgroup_product<64, true>(77);
  for (const int kv_rows : {77, 128}) {
    check_warpgroup_product<80, true>(kv_rows);
    check_warpgroup_product<96, true>(kv_rows);
    check_warpgroup_product<112, true>(kv_rows);
    check_warpgroup_product<160, true>(kv_rows);
    check_warpgroup_product<192, true>(kv_rows);
  }
}

TEST(TensorMap, RefusesWhatTheHardwareCannotDo) {
  if (compute_capability() < 90) GTEST_SKIP() << "needs sm_90";
  CUtensorMap map{};
  const DeviceArray<__half> data(std::vector<__half>(4096));
  const auto encode = [&](host::TensorLayout layout, int box_columns) {
    return host::encode_tensor_map(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, data.get(), layout, 16,
                                   box_columns);
  };
  EXPECT_EQ(encode({1, 1, 32, 64, 0, 0, 64}, 64), cudaSuccess);
  EXPECT_NE(encode({1, 1, 32, 64, 0, 0, 63}, 64), cudaSuccess);  // rows not on 16 bytes
  EXPECT_NE(encode({1, 1, 0, 64, 0, 0, 64}, 64), cudaSuccess);   // no rows
  EXPECT_NE(encode({1, 1, 32, 64, 0, 0, 64}, 48), cudaSuccess);  // no such swizzle
}

}  // namespace
}  // namespace flashcore::cuda
