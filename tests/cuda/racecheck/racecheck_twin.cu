// A ring of stages in shared memory, filled by a producer and read by consumers, as backward_sm90
// passes row statistics: what compute-sanitizer's racecheck says of each way to fill it.
//
//   producer   | wait empty[stage] | expect bytes, copy 768 bytes to the stage   -> full[stage]
//   consumers  | wait full[stage]  | LDS | __syncwarp, lane 0 arrives            -> empty[stage]
//
// PTX orders the reads after the copy (its bytes complete the phase that they wait for) and the
// next copy after the reads (the producer waits for their arrivals). Variants whose names begin with
// "race" do race, and are there to show what the tool can tell. docs/verification.md has the results.
//
//   racecheck_twin            # the variants
//   racecheck_twin NAME...    # runs them
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cuda/ptx/bulk_copy.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_access.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/sync.cuh"
#include "cuda/ptx/tma.cuh"

namespace ptx = flashcore::cuda::ptx;

namespace {

constexpr int kConsumerWarps = 8, kThreads = 32 * (1 + kConsumerWarps), kBlocks = 4;
constexpr int kFloats = 192, kRowFloats = 32, kRows = kFloats / kRowFloats;
constexpr uint32_t kBytes = 4 * kFloats;

enum class Fill { bulk, tensor, stores, cp_async };
// A race: nobody waits for the copy, or all stages lie in one place.
enum class Injected { nothing, reads_early, one_place };

struct Variant {
  const char* name;
  Fill fill;
  int stages, steps;
  bool all_threads_arrive = false;  // at `empty`, not one lane a warp
  bool fence_proxy = false;         // by the readers, before they arrive
  bool opaque_wait = false;         // mbarrier_wait_together
  bool fill_and_tile = false;       // another copy counts towards the same barrier
  Injected injected = Injected::nothing;
};

constexpr Variant kVariants[] = {
    {.name = "bulk_once", .fill = Fill::bulk, .stages = 1, .steps = 1},
    {.name = "bulk_one_stage", .fill = Fill::bulk, .stages = 1, .steps = 8},
    {.name = "bulk_no_reuse", .fill = Fill::bulk, .stages = 4, .steps = 4},
    {.name = "bulk_ring", .fill = Fill::bulk, .stages = 2, .steps = 8},
    {.name = "bulk_ring_fence", .fill = Fill::bulk, .stages = 2, .steps = 8, .fence_proxy = true},
    {.name = "bulk_ring_opaque_wait",
     .fill = Fill::bulk,
     .stages = 2,
     .steps = 8,
     .opaque_wait = true},
    {.name = "bulk_ring_and_tile",
     .fill = Fill::bulk,
     .stages = 2,
     .steps = 8,
     .opaque_wait = true,
     .fill_and_tile = true},
    {.name = "bulk_ring_all_arrive",
     .fill = Fill::bulk,
     .stages = 2,
     .steps = 8,
     .all_threads_arrive = true},
    {.name = "bulk_one_stage_all_arrive",
     .fill = Fill::bulk,
     .stages = 1,
     .steps = 8,
     .all_threads_arrive = true},
    {.name = "bulk_ring_and_tile_all_arrive",
     .fill = Fill::bulk,
     .stages = 2,
     .steps = 8,
     .all_threads_arrive = true,
     .opaque_wait = true,
     .fill_and_tile = true},
    {.name = "tensor_ring", .fill = Fill::tensor, .stages = 2, .steps = 8},
    {.name = "stores_ring", .fill = Fill::stores, .stages = 2, .steps = 8},
    {.name = "stores_ring_all_arrive",
     .fill = Fill::stores,
     .stages = 2,
     .steps = 8,
     .all_threads_arrive = true},
    {.name = "cp_async_ring", .fill = Fill::cp_async, .stages = 2, .steps = 8},
    {.name = "cp_async_ring_all_arrive",
     .fill = Fill::cp_async,
     .stages = 2,
     .steps = 8,
     .all_threads_arrive = true},
    {.name = "race_bulk_reads_early",
     .fill = Fill::bulk,
     .stages = 1,
     .steps = 1,
     .all_threads_arrive = true,
     .injected = Injected::reads_early},
    {.name = "race_bulk_one_place",
     .fill = Fill::bulk,
     .stages = 2,
     .steps = 2,
     .all_threads_arrive = true,
     .injected = Injected::one_place},
    {.name = "race_tensor_reads_early",
     .fill = Fill::tensor,
     .stages = 1,
     .steps = 1,
     .all_threads_arrive = true,
     .injected = Injected::reads_early},
    {.name = "race_tensor_one_place",
     .fill = Fill::tensor,
     .stages = 2,
     .steps = 2,
     .all_threads_arrive = true,
     .injected = Injected::one_place},
    {.name = "race_stores_reads_early",
     .fill = Fill::stores,
     .stages = 1,
     .steps = 1,
     .all_threads_arrive = true,
     .injected = Injected::reads_early},
    {.name = "race_stores_one_place",
     .fill = Fill::stores,
     .stages = 2,
     .steps = 2,
     .all_threads_arrive = true,
     .injected = Injected::one_place},
    {.name = "race_cp_async_reads_early",
     .fill = Fill::cp_async,
     .stages = 1,
     .steps = 1,
     .all_threads_arrive = true,
     .injected = Injected::reads_early},
    {.name = "race_cp_async_one_place",
     .fill = Fill::cp_async,
     .stages = 2,
     .steps = 2,
     .all_threads_arrive = true,
     .injected = Injected::one_place},
};

constexpr int kMostStages = 4;

struct Shared {
  alignas(1024) float row_stats[kMostStages][kFloats];
  alignas(1024) float tile[kMostStages][kFloats];  // nobody reads it
  uint64_t full[kMostStages], empty[kMostStages];
};

template <int kIndex>
__global__ void __launch_bounds__(kThreads)
    ring(const __grid_constant__ CUtensorMap map, const float* row_stats, float* sums) {
  constexpr Variant kVariant = kVariants[kIndex];
  constexpr bool kByWarp = kVariant.fill == Fill::stores || kVariant.fill == Fill::cp_async;
  Shared& smem = ptx::static_shared<Shared>();
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kVariant.stages; ++stage) {
      const int writers = (kByWarp ? 32 : 1) + (kVariant.fill_and_tile && kByWarp ? 1 : 0);
      ptx::mbarrier_init(ptx::shared_address(&smem.full[stage]), static_cast<uint32_t>(writers));
      ptx::mbarrier_init(ptx::shared_address(&smem.empty[stage]),
                         kConsumerWarps * (kVariant.all_threads_arrive ? 32 : 1));
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (warp == 0) {
    for (int step = 0; step < kVariant.steps; ++step) {
      const int stage = step % kVariant.stages, turn = step / kVariant.stages;
      const int place = kVariant.injected == Injected::one_place ? 0 : stage;
      const uint32_t full = ptx::shared_address(&smem.full[stage]);
      ptx::mbarrier_wait(ptx::shared_address(&smem.empty[stage]), turn % 2 ^ 1);
      const float* const from = row_stats + (blockIdx.x * kVariant.steps + step) * kFloats;
      const uint32_t to = ptx::shared_address(smem.row_stats[place]);
      if (lane == 0 && kVariant.fill_and_tile) {
        ptx::mbarrier_arrive_expect(full, kByWarp ? kBytes : 2 * kBytes);
        ptx::tma_load_4d(ptx::shared_address(smem.tile[stage]), &map, full, 0, 0, step, blockIdx.x);
      }
      if constexpr (kVariant.fill == Fill::bulk) {
        if (lane == 0) {
          if (!kVariant.fill_and_tile) ptx::mbarrier_arrive_expect(full, kBytes);
          ptx::bulk_load(to, from, kBytes, full);
        }
      } else if constexpr (kVariant.fill == Fill::tensor) {
        if (lane == 0) {
          ptx::mbarrier_arrive_expect(full, kBytes);
          ptx::tma_load_4d(to, &map, full, 0, 0, step, blockIdx.x);
        }
      } else if constexpr (kVariant.fill == Fill::stores) {
        for (int i = lane; i < kFloats; i += 32) smem.row_stats[place][i] = from[i];
        ptx::mbarrier_arrive(full);
      } else {
        for (int i = lane; i < kFloats / 4; i += 32) {
          ptx::cp_async_16(to + 16 * i, reinterpret_cast<const uint4*>(from) + i);
        }
        ptx::cp_async_arrive(full);
      }
      __syncwarp();
    }
    return;
  }
  float sum = 0;
  for (int step = 0; step < kVariant.steps; ++step) {
    const int stage = step % kVariant.stages, turn = step / kVariant.stages;
    const int place = kVariant.injected == Injected::one_place ? 0 : stage;
    const uint32_t full = ptx::shared_address(&smem.full[stage]);
    const auto parity = static_cast<uint32_t>(turn % 2);
    if (kVariant.injected != Injected::reads_early) {
      if (kVariant.opaque_wait) {
        ptx::mbarrier_wait_together(full, parity);
      } else {
        ptx::mbarrier_wait(full, parity);
      }
    }
    for (int i = lane; i < kFloats / 2; i += 32) {
      const float2 x = ptx::load_shared_x2(ptx::shared_address(smem.row_stats[place]) + 8 * i);
      sum += x.x + x.y;
    }
    if (kVariant.fence_proxy) ptx::fence_proxy_async();
    const uint32_t empty = ptx::shared_address(&smem.empty[stage]);
    if (kVariant.all_threads_arrive) {
      ptx::mbarrier_arrive(empty);
    } else {
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty);
    }
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  }
  if (lane == 0) sums[blockIdx.x * kConsumerWarps + warp - 1] = sum;
}

int failure(const char* what, cudaError_t error) {
  std::fprintf(stderr, "racecheck_twin: %s: %s\n", what, cudaGetErrorString(error));
  return 2;
}

// The row statistics as a tensor of 32 columns; the swizzle moves numbers within a box, which a sum ignores.
bool encode(CUtensorMap& map, void* row_stats, int steps) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault,
                                       &found) != cudaSuccess ||
      entry == nullptr) {
    return false;
  }
  const cuuint64_t extent[4] = {kRowFloats, kRows, static_cast<cuuint64_t>(steps), kBlocks};
  const cuuint64_t stride[3] = {4 * kRowFloats, kBytes, kBytes * static_cast<cuuint64_t>(steps)};
  const cuuint32_t box[4] = {kRowFloats, kRows, 1, 1}, element_stride[4] = {1, 1, 1, 1};
  return reinterpret_cast<Encode>(entry)(
             &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, row_stats, extent, stride, box,
             element_stride, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <int kIndex>
int run() {
  constexpr Variant kVariant = kVariants[kIndex];
  constexpr int kPerBlock = kVariant.steps * kFloats, kSums = kBlocks * kConsumerWarps;
  static float values[kBlocks * kPerBlock], sums[kSums];
  for (int i = 0; i < kBlocks * kPerBlock; ++i) values[i] = static_cast<float>(i % 101 - 50);
  float *row_stats = nullptr, *result = nullptr;
  CUtensorMap map{};
  cudaError_t error = cudaMalloc(&row_stats, sizeof(values));
  if (error == cudaSuccess) error = cudaMalloc(&result, sizeof(sums));
  if (error == cudaSuccess)
    error = cudaMemcpy(row_stats, values, sizeof(values), cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return failure("memory", error);
  if (!encode(map, row_stats, kVariant.steps)) {
    return failure("cuTensorMapEncodeTiled", cudaErrorUnknown);
  }
  ring<kIndex><<<kBlocks, kThreads>>>(map, row_stats, result);
  error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaMemcpy(sums, result, sizeof(sums), cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) return failure("the kernel", error);
  cudaFree(row_stats);
  cudaFree(result);
  bool right = true;
  for (int i = 0; i < kSums; ++i) {
    float wanted = 0;
    for (int j = 0; j < kPerBlock; ++j) wanted += values[i / kConsumerWarps * kPerBlock + j];
    right = right && sums[i] == wanted;
  }
  std::printf("%s: sums %s\n", kVariant.name, right ? "right" : "wrong");
  return right || kVariant.injected != Injected::nothing ? 0 : 1;
}

constexpr int kCount = sizeof(kVariants) / sizeof(kVariants[0]);

template <int kIndex = 0>
int run_named(const char* name) {
  if constexpr (kIndex == kCount) {
    std::fprintf(stderr, "racecheck_twin: no variant is called %s\n", name);
    return 2;
  } else {
    return std::strcmp(name, kVariants[kIndex].name) == 0 ? run<kIndex>()
                                                          : run_named<kIndex + 1>(name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Variant& variant : kVariants) std::printf("%s\n", variant.name);
    return 0;
  }
  for (int i = 1; i < argc; ++i) {
    if (const int code = run_named(argv[i]); code != 0) return code;
  }
  return 0;
}
