// Rung 11, warp_specialized: one producer warp loads, the others compute; blocks are persistent.
//
// Adds: there is no barrier of the whole block. The producer runs ahead as far as the ring
// allows, past the end of one query tile into the next; a copy arrives on an mbarrier when
// it has landed, and a consumer warp that has finished with a stage arrives on another.
// Blocks are persistent and take query tiles from attention/scheduler.hpp, longest first.
//
//   producer   | K0 V0, Q | K1 V1 | wait empty 0 | K2 V2 | ... | K0 V0 of the next query tile ...
//                   \ full 0  \ full 1      ^
//   consumers       | step 0  | step 1 -----/ empty 0  | ...    | store O | empty Q | step 0 ...
//
// Layout: 1 producer warp and 4 consumer warps of 16 query rows each (warp_rows.cuh). Q, K,
// V, P and O swizzled. Barriers: full and empty for each stage and for Q. Every lane arrives
// separately: on full when its copies have landed, on empty when its reads are done.
#include "cuda/attention/scheduler.hpp"
#include "cuda/ladder/rung_common.cuh"
#include "cuda/ladder/rung_table.hpp"
#include "cuda/ladder/warp_rows.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace flashcore::cuda::ladder {
namespace {

constexpr int kBlockQ = 64, kStages = 3;
constexpr int kConsumerWarps = kBlockQ / kWmma;
constexpr int kThreads = (kConsumerWarps + 1) * kWarpSize;
constexpr int kMinBlocks = 3;  // per SM: five warps of 128 registers leave no room for a fourth

template <int kHeadDim>
constexpr int kBlockKv = kHeadDim == 64 ? 64 : 32;

template <int kHeadDim>
using Rows = WarpRows<kHeadDim, kBlockKv<kHeadDim>>;

// A pair of barriers around one buffer, and a thread's current round of it.
struct Handover {
  uint64_t full, empty;
};

template <int kHeadDim>
struct Shared {
  alignas(256) __half q[kBlockQ * kHeadDim];
  __half k[kStages][kBlockKv<kHeadDim> * kHeadDim], v[kStages][kBlockKv<kHeadDim> * kHeadDim];
  __half strips[kConsumerWarps][Rows<kHeadDim>::kStripHalves];
  float scratch[kConsumerWarps][Rows<kHeadDim>::kScratchFloats];
  Handover queries, stages[kStages];
};

// The n-th use of a buffer: its round fills phase n of `full` and waits
// for phase n - 1 of `empty`, which in round 0 has completed already.
__device__ void wait_full(const Handover& buffer, int use) {
  ptx::mbarrier_wait(ptx::shared_address(&buffer.full), use & 1);
}
__device__ void wait_empty(const Handover& buffer, int use) {
  ptx::mbarrier_wait(ptx::shared_address(&buffer.empty), (use & 1) ^ 1);
}

template <int kHeadDim>
__device__ void produce(Shared<kHeadDim>& smem, const RungParams& params,
                        const attention::TileOrder& order, int lane) {
  constexpr int kKeys = kBlockKv<kHeadDim>;
  int slot = 0, query_use = 0;  // key tiles and query tiles so far
  for (uint32_t index = blockIdx.x; index < order.size(); index += gridDim.x) {
    const attention::TileOrder::Place at = order.at(index);
    const QueryTileWork work =
        query_tile_work(params, at.batch_head, static_cast<int>(at.q_tile), kBlockQ);
    const int tiles = ceil_div(work.kv_end, kKeys);
    for (int tile = 0; tile < tiles; ++tile, ++slot) {
      Handover& stage = smem.stages[slot % kStages];
      wait_empty(stage, slot / kStages);
      copy_tile_fast_async<kWarpSize, kKeys, kHeadDim>(smem.k[slot % kStages], work.head.k,
                                                       params.k_stride.row, tile * kKeys,
                                                       work.kv_end, lane);
      copy_tile_fast_async<kWarpSize, kKeys, kHeadDim>(smem.v[slot % kStages], work.head.v,
                                                       params.v_stride.row, tile * kKeys,
                                                       work.kv_end, lane);
      ptx::cp_async_arrive(ptx::shared_address(&stage.full));
      if (tile > 0) continue;
      wait_empty(smem.queries, query_use);
      copy_tile_fast_async<kWarpSize, kBlockQ, kHeadDim>(smem.q, work.head.q, params.q_stride.row,
                                                         work.first_row, params.seqlen_q, lane);
      ptx::cp_async_arrive(ptx::shared_address(&smem.queries.full));
      ++query_use;
    }
  }
  ptx::cp_async_wait<0>();
}

template <int kHeadDim>
__device__ void consume(Shared<kHeadDim>& smem, const RungParams& params,
                        const attention::TileOrder& order, int warp) {
  constexpr int kKeys = kBlockKv<kHeadDim>;
  Rows<kHeadDim> rows(smem.q + warp * kWmma * kHeadDim, smem.strips[warp], smem.scratch[warp]);
  int slot = 0, query_use = 0;
  for (uint32_t index = blockIdx.x; index < order.size(); index += gridDim.x) {
    const attention::TileOrder::Place at = order.at(index);
    const QueryTileWork work =
        query_tile_work(params, at.batch_head, static_cast<int>(at.q_tile), kBlockQ);
    const int tiles = ceil_div(work.kv_end, kKeys);
    const int first_row = work.first_row + warp * kWmma;
    const int last_row = min(first_row + kWmma, params.seqlen_q) - 1;
    const int warp_tiles = ceil_div(visible_keys(params, last_row), kKeys);
    rows.begin(params, first_row);
    if (tiles > 0) {
      wait_full(smem.queries, query_use);
      rows.load_queries();
    }
    for (int tile = 0; tile < tiles; ++tile, ++slot) {
      Handover& stage = smem.stages[slot % kStages];
      wait_full(stage, slot / kStages);
      if (tile < warp_tiles) {
        rows.step(params, smem.k[slot % kStages], smem.v[slot % kStages], tile * kKeys,
                  work.kv_end);
      }
      ptx::mbarrier_arrive(ptx::shared_address(&stage.empty));
    }
    rows.store(params, work.head);
    if (tiles > 0) {
      ptx::mbarrier_arrive(ptx::shared_address(&smem.queries.empty));
      ++query_use;
    }
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    warp_specialized_kernel(const __grid_constant__ RungParams params,
                            const __grid_constant__ attention::TileOrder order) {
  auto& smem = shared_storage<Shared<kHeadDim>>();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (threadIdx.x == 0) {
    const auto init = [](Handover& buffer) {
      ptx::mbarrier_init(ptx::shared_address(&buffer.full), kWarpSize);
      ptx::mbarrier_init(ptx::shared_address(&buffer.empty), kConsumerWarps * kWarpSize);
    };
    init(smem.queries);
    for (Handover& stage : smem.stages) init(stage);
  }
  __syncthreads();
  if (warp == kConsumerWarps) {
    produce(smem, params, order, lane);
  } else {
    consume(smem, params, order, warp);
  }
}

// As many blocks as fit on the device at once, but no more than there are tiles.
template <int kHeadDim>
cudaError_t launch_persistent(const RungParams& params, cudaStream_t stream) {
  using Storage = Shared<kHeadDim>;
  const auto kernel = warp_specialized_kernel<kHeadDim>;
  constexpr uint32_t kL2Bytes = 32 << 20, kRowBytes = 2 * kHeadDim * sizeof(__half);
  if (query_tiles(params, kBlockQ) > std::numeric_limits<int>::max()) {
    return cudaErrorInvalidConfiguration;
  }
  const auto batch_heads = static_cast<uint32_t>(int64_t{params.batch} * params.heads);
  const attention::TileOrder order{
      .batch_heads = batch_heads,
      .q_tiles = static_cast<uint32_t>(ceil_div(params.seqlen_q, kBlockQ)),
      .section_heads = attention::section_heads(
          kL2Bytes / kRowBytes, static_cast<uint32_t>(params.seqlen_kv), 1, batch_heads),
      .longest_first = true};

  cudaError_t error = allow_shared_bytes(kernel, sizeof(Storage));
  if (error != cudaSuccess) return error;
  int blocks_each = 0, multiprocessors = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, kernel, kThreads,
                                                        sizeof(Storage));
  if (error != cudaSuccess) return error;
  if (blocks_each == 0) return cudaErrorInvalidConfiguration;
  error = multiprocessor_count(&multiprocessors);
  if (error != cudaSuccess) return error;
  return launch_blocks(kernel,
                       std::min<int64_t>(order.size(), int64_t{blocks_each} * multiprocessors),
                       kThreads, sizeof(Storage), stream, clamped(params), order);
}

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return launch_persistent<64>(params, stream);
    case 128:
      return launch_persistent<128>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

const Rung kRung11WarpSpecialized = {
    .name = "11_warp_specialized",
    .adds = "a producer warp, consumer warps, persistent blocks, tiles from a scheduler",
    .prediction =
        "no block barrier, loads across tiles, a producer warp in place of a computing one: 1.1x",
    .input = RungInput::fp16,
    .min_compute_capability = 80,
    .max_compute_capability = 0,
    .workspace_bytes = no_workspace,
    .launch = launch,
};

}  // namespace flashcore::cuda::ladder
