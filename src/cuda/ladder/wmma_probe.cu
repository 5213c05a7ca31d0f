// The probe: one warp loads tiles whose elements are their
// own index, and compares each register with the maps.
#include <cuda_fp16.h>
#include <mma.h>

#include <mutex>
#include <unordered_map>

#include "cuda/host/launch_kernel.hpp"
#include "cuda/ladder/wmma_probe.hpp"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/tile/wmma_fragment.hpp"

namespace flashcore::cuda::ladder {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kTile = tile::kWmmaTile, kElements = kTile * kTile;

__device__ int mismatches;

// Compares every register of `fragment` with map(lane, register), an index into a row-major 16x16
// tile. Operand fragments repeat their first half, so the register number is taken modulo 8.
template <class Fragment, class Index>
__device__ int count_mismatches(const Fragment& fragment, const Index& index) {
  int wrong = 0;
  for (int r = 0; r < Fragment::num_elements; ++r) {
    const int expected = index(static_cast<int>(threadIdx.x), r % tile::kWmmaOperandRegisters);
    wrong += static_cast<float>(fragment.x[r]) != static_cast<float>(expected);
  }
  return wrong;
}

__global__ void probe_kernel() {
  auto& halves = ptx::static_shared<__half[kElements], 128>();
  auto& floats = ptx::static_shared<float[kElements], 128>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < kElements; i += 32) {
    halves[i] = __int2half_rn(i);  // exact up to 2048
    floats[i] = static_cast<float>(i);
  }
  __syncwarp();

  wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, __half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, __half, wmma::row_major> b_rows;
  wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, __half, wmma::col_major> b_columns;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> accumulator;
  wmma::load_matrix_sync(a, halves, kTile);
  wmma::load_matrix_sync(b_rows, halves, kTile);
  wmma::load_matrix_sync(b_columns, halves, kTile);
  wmma::load_matrix_sync(accumulator, floats, kTile, wmma::mem_row_major);

  int wrong = count_mismatches(a, [](int l, int r) {
    const tile::Coord at = tile::wmma_operand_a(l, r);
    return at.row * kTile + at.column;
  });
  wrong += count_mismatches(b_rows, [](int l, int r) {
    const tile::Coord at = tile::wmma_operand_b(l, r);
    return at.row * kTile + at.column;
  });
  wrong += count_mismatches(b_columns, [](int l, int r) {
    const tile::Coord at = tile::wmma_operand_b(l, r);
    return at.column * kTile + at.row;
  });
  wrong += count_mismatches(accumulator, [](int l, int r) {
    const tile::Coord at = tile::wmma_accumulator(l, r);
    return at.row * kTile + at.column;
  });
  wrong = __reduce_add_sync(0xffffffffU, wrong);
  if (lane == 0) mismatches = wrong;
}

}  // namespace

cudaError_t probe_wmma_layout(bool* matches) {
  static std::mutex mutex;
  static std::unordered_map<int, bool> answers;  // per device

  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const std::lock_guard lock(mutex);
  if (const auto known = answers.find(device); known != answers.end()) {
    *matches = known->second;
    return cudaSuccess;
  }
  int wrong = 0;
  error = host::launch_kernel(&probe_kernel, {.grid = dim3(1), .threads = 32}, nullptr);
  if (error != cudaSuccess) return error;
  error = cudaMemcpyFromSymbol(&wrong, mismatches, sizeof wrong);
  if (error != cudaSuccess) return error;
  *matches = answers[device] = wrong == 0;
  return cudaSuccess;
}

}  // namespace flashcore::cuda::ladder
