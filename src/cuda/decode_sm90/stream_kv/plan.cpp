#include "cuda/decode_sm90/stream_kv/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cuda/attention/divisor.hpp"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/params.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/decode_sm90/stream_kv/supports.hpp"
#include "cuda/host/decode_params.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/host/pointer_cache.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {
namespace {

constexpr std::string_view kName = "decode_sm90";
constexpr int64_t kAlignment = 256;  // of each array in the workspace
// Blocks of the second kernel on one SM: as many as fit next to the first, and as many as
// run at once after it.
constexpr int64_t kJoinBlocksBeside = 4, kJoinBlocksAfter = 16;

using MapCache = host::PointerCache<Maps, 2>;

struct Planned {
  Params params;
  bool whole_boxes;  // of all panels of a tile
  int config;        // the row of kConfigs
  launch::Kernel kernel, join;
  launch::Grid grid, join_grid;  // blocks: tiles of rows, and shares of the keys
  int tile_shift;                // log2 of a tile's rows
  bool joins;                    // whether there is anything to join
  // Bytes from the beginning of the workspace.
  int64_t o_at, bytes;
};

const Config& config_of(const Planned& planned) {
  return kConfigs[static_cast<size_t>(planned.config)];
}

// A whole number of panels is one box; otherwise each panel is one, and what is past the tensor's
// columns becomes zeros.
void set_boxes(Planned& planned, const ForwardProblem& p) {
  const Config& config = config_of(planned);
  const int columns = config.panel_columns(), panels = config.head_dim / columns;
  const bool whole = p.head_dim_qk % columns == 0 && p.head_dim_v % columns == 0;
  planned.whole_boxes = whole;
  Params& params = planned.params;
  params.boxes = !has_boxes(p) ? 0 : whole ? 1 : panels;
  params.box_columns = columns;
  params.box_bytes = config.tile_bytes() / (whole ? 1 : panels);
  params.key_alignment = params.boxes > 0 && p.paging.present ? config.tile_keys : 1;
}

// Sets what the host knows of sequences that are equal.
void set_equal(Params& params, const ForwardProblem& p) {
  params.equal =
      p.batch > kKnownEntries && !entries_vary(p) && !p.cache_leftpad.present && !p.paging.present;
  if (!params.equal) return;
  attention::CachedEntry at{};
  at.entry.len_q = at.entry.rows_q = static_cast<int>(p.seqlen_q);
  at.entry.len_kv = static_cast<int>(p.seqlen_kv);
  at.entry.offset = common_offset(p);
  params.same = known_entry(at, params.band, params.group);
  params.entry_cost =
      item_cost(params.same.seen.granules(), params.item_end) * static_cast<int>(p.heads_kv);
  params.by_entry_cost = attention::divisor(static_cast<uint32_t>(std::max(1, params.entry_cost)));
}

// As many blocks as rows while there are few, and later one for as many rows as a warp has lanes.
// Where few rows are joined, blocks that wait next to the first kernel are best.
launch::Grid join_grid_of(const ForwardProblem& p, const Planned& planned, int multiprocessors) {
  const int64_t rows = product_of({p.batch, p.heads_kv, planned.params.rows_of_head});
  const bool beside = config_of(planned).row_tiles == 1 && !planned.params.batch_invariant;
  const int64_t many = (beside ? kJoinBlocksBeside : kJoinBlocksAfter) * multiprocessors;
  const int64_t blocks = std::max({int64_t{1}, std::min(rows, many), divide_up(rows, 32)});
  return {
      .blocks = dim3(static_cast<unsigned int>(blocks)),
      .early = true,
      .threads = static_cast<unsigned int>(32 * std::max<int64_t>(1, divide_up(p.head_dim_v, 32)))};
}

// Lays out the workspace by the largest sizes. Returns false if it has 2^63 bytes or more.
bool place_workspace(Planned& planned, const ForwardProblem& p, bool batch_invariant) {
  const auto end_of = [](int64_t begin, int64_t bytes) {
    const int64_t end = sum_of({begin, bytes, kAlignment - 1});
    return end == kTooLarge ? end : end / kAlignment * kAlignment;
  };
  const int64_t slots = most_slots(product_of({p.batch, p.heads_kv}), p.seqlen_kv,
                                   planned.params.shares, batch_invariant);
  const int64_t rows = product_of({slots, planned.params.tiles, planned.params.tile_rows});
  planned.o_at = end_of(0, product_of({rows, int64_t{sizeof(float2)}}));
  planned.bytes = end_of(planned.o_at, product_of({rows, p.head_dim_v, int64_t{sizeof(float)}}));
  return planned.bytes != kTooLarge;
}

cudaError_t encode(Maps& maps, const Planned& planned, const ForwardProblem& p,
                   const Arguments& args) {
  const Config& config = config_of(planned);
  const CUtensorMapDataType type = config.kv_bytes == 1      ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : p.k_dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto one = [&](CUtensorMap& map, const void* base, const RowStrides& stride,
                       int64_t head_dim) {
    const host::TensorLayout layout{p.paging.present ? p.paging.num_pages
                                    : p.packed       ? 1
                                                     : p.batch,
                                    p.heads_kv,
                                    p.paging.present ? p.paging.page_size
                                    : p.packed       ? p.total_kv
                                                     : p.seqlen_kv,
                                    head_dim,
                                    stride.batch,
                                    stride.head,
                                    stride.row};
    return host::encode_panel_map(map, type, base, layout, config.tile_keys, config.panel_columns(),
                                  planned.whole_boxes);
  };
  const cudaError_t error = one(maps.k, args.k, p.k, p.head_dim_qk);
  return error != cudaSuccess ? error : one(maps.v, args.v, p.v, p.head_dim_v);
}

// What find_cached_entry<true> wants, of pointers that are bound.
bool is_plain(const Params& p) {
  return !p.cache.flat && p.cache.leftpad.data == nullptr && p.cu_seqlens_q.data == nullptr &&
         p.cu_seqlens_kv.data == nullptr && p.seqlens_q.data == nullptr &&
         p.causal_offsets.data == nullptr;
}

Status run(const ForwardProblem& p, const Planned& planned, MapCache& cache, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  Params params = planned.params;
  host::bind_decode_params(params, p, args);
  params.plain = is_plain(params);
  params.tree.data = p.tree_mask.present ? args.tree_mask : nullptr;
  params.partial_rows = reinterpret_cast<float2*>(workspace.data());
  params.partial_o = reinterpret_cast<float*>(workspace.data() + planned.o_at);
  Maps maps{};
  if (!params.chunks) {  // where K and V begin
    params.boxes = 0;
    params.key_alignment = 1;
  }
  if (params.boxes > 0) {
    const cudaError_t error = cache.get(
        {args.k, args.v}, maps, [&](Maps& made) { return encode(made, planned, p, args); },
        cudaSuccess);
    FLASHCORE_RETURN_IF_ERROR(launcher.failed("describing the tensors", error));
  }
  FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.kernel, planned.grid, params, maps));
  return planned.joins
             ? launcher.launch(planned.join, planned.join_grid, params, planned.tile_shift)
             : Status{};
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context) {
  if (p.heads_q == 0 || (p.packed ? p.total_q == 0 : p.batch == 0 || p.seqlen_q == 0)) {
    return launch::nothing<PlannedKernel>();
  }
  Planned planned{};
  planned.config = config_index(p);
  const Shares shares = shares_of(p, context);
  const auto tiles = static_cast<unsigned int>(tile_count(p));
  const auto share_count = static_cast<unsigned int>(shares.count);
  planned.grid = {.blocks = dim3(tiles, share_count), .early = context.early_start};
  planned.joins = !shares.whole;
  Params& params = planned.params;
  host::set_decode_params(params, p, context.batch_invariant);
  params.tree = host::tree_bits_of(p);
  params.by_shares = attention::divisor(share_count);
  params.by_heads = attention::divisor(static_cast<uint32_t>(p.heads_kv));
  params.shares = static_cast<int>(share_count);
  params.own_parts = context.batch_invariant ? most_own_parts(p.seqlen_kv) : 0;
  params.item_end = p.batch * p.heads_kv >= params.shares ? 1 : 0;
  set_equal(params, p);
  params.rows_of_head = static_cast<int>(std::max<int64_t>(1, p.seqlen_q * params.group));
  params.by_rows = attention::divisor(static_cast<uint32_t>(params.rows_of_head));
  params.tiles = static_cast<int>(tiles);
  params.tile_rows =
      static_cast<int>(std::min<int64_t>(config_of(planned).rows(), params.rows_of_head));
  planned.join_grid = join_grid_of(p, planned, context.device.multiprocessors);
  planned.tile_shift = std::countr_zero(static_cast<unsigned int>(config_of(planned).rows()));
  set_boxes(planned, p);
  if (!place_workspace(planned, p, context.batch_invariant)) {
    return unsupported("kernel {}: workspace: needs 2^63 bytes or more, wanted less", kName);
  }
  const int device = context.device.device.index;
  {
    const launch::Loader loader(kName, device);
    FLASHCORE_RETURN_IF_ERROR(loader.load(
        planned.kernel, kName,
        fmt::format("decode90_{}_config{}", launch::element_name(p.dtype), planned.config)));
    FLASHCORE_RETURN_IF_ERROR(loader.load(planned.join, kName, "join"));
  }
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(planned.bytes),
      [p, planned, cache = std::make_shared<MapCache>()](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, *cache, args, workspace, launcher);
      });
}

}  // namespace

Variant variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .automatic = true,
          .targets = build::targets::decode_sm90,
          .supports = supports(),
          .plan = plan};
}

}  // namespace flashcore::cuda::decode_sm90::stream_kv
