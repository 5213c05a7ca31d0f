#include "cuda/backward_sm80/general/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/backward_sm80/general/joint_sums.hpp"
#include "cuda/backward_sm80/general/params.hpp"
#include "cuda/backward_sm80/general/supports.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/device_code.hpp"
#include "problem/row_strides.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm80::general {
namespace {

constexpr std::string_view kName = "backward_sm80";
// Keys and values of a section of heads that runs at once: half of an A100's or H100's L2.
constexpr int64_t kSectionBytes = int64_t{20} << 20;
constexpr int64_t kChunkBytes = 16, kWorkspaceAlignment = 256;
constexpr int64_t kJointCounters = 2;  // and the turns: next_block, not_finite

// A launch of a kernel whose one argument is Params.
struct Launch {
  std::string instance;
  unsigned int blocks;
  launch::Kernel kernel = {};
};

struct Planned {
  BackwardProblem problem;
  Params params;
  launch::Kernel zero_rows = {}, find_row_stats = {}, add_rows = {};
  std::vector<Launch> launches = {};          // of tiles
  int64_t rows = 0;                           // of the workspace
  int64_t sink_offset = 0, slope_offset = 0;  // in it
  int64_t sums_offset = 0, counters_offset = 0;
  int joint_config = -1;  // -1: there is no joint kernel
  bool ordered = true;    // its additions to dQ
};

int64_t rows_of(const ForwardProblem& p, bool queries) {
  if (p.packed) return queries ? p.total_q : p.total_kv;
  return queries ? p.seqlen_q : p.seqlen_kv;
}
int64_t heads_of(const ForwardProblem& p, bool queries) { return queries ? p.heads_q : p.heads_kv; }

// What is read, and whether its rows are aligned chunks, except for where it begins.
Source source(const ForwardProblem& p, const RowStrides& stride, DType dtype, bool queries,
              int64_t columns, ElementType computed) {
  const bool chunks = host::element_type(dtype) == computed &&
                      columns * static_cast<int64_t>(size_of(dtype)) % kChunkBytes == 0 &&
                      misaligned_rows("", stride, dtype, p.packed ? 1 : p.batch,
                                      heads_of(p, queries), rows_of(p, queries))
                          .empty();
  return {.matrix = {nullptr, stride.batch, stride.head, stride.row},
          .type = host::element_type(dtype),
          .columns = static_cast<int>(columns),
          .chunks = chunks};
}

Target target(const RowStrides& stride, DType dtype, int64_t columns) {
  const bool even =
      stride.batch % 2 == 0 && stride.head % 2 == 0 && stride.row % 2 == 0 && columns % 2 == 0;
  return {.data = nullptr,
          .batch = stride.batch,
          .head = stride.head,
          .row = stride.row,
          .type = host::element_type(dtype),
          .columns = static_cast<int>(columns),
          .pairs = even,
          .chunks = stride.batch % 8 == 0 && stride.head % 8 == 0 && stride.row % 8 == 0};
}

PairMatrix pair_matrix(const PairInput& input) {
  return {nullptr,     input.batch, input.head,
          input.query, input.key,   host::element_type(input.dtype)};
}

// Tiles of block_x rows of one side in `order`, and how many blocks take them.
Tiling tiling(const ForwardProblem& p, bool queries, int block_x, const attention::TileOrder& order,
              unsigned int& blocks) {
  Tiling tiling{.order = order, .packed_slots = 0};
  const int64_t tiles = p.batch * int64_t{order.q_tiles};
  const int64_t slots = attention::packed_slots(rows_of(p, queries), p.batch, block_x);
  const bool packed = p.packed && slots < tiles;
  if (packed) tiling.packed_slots = static_cast<int>(slots);
  blocks = static_cast<unsigned int>(heads_of(p, queries) * (packed ? slots : tiles));
  return tiling;
}

Tiling tiling_of_queries(const ForwardProblem& p, int block_x, unsigned int& blocks) {
  return tiling(p, true, block_x,
                host::tile_order(p, block_x, host::section_rows(p, kSectionBytes)), blocks);
}

Tiling tiling_of_keys(const ForwardProblem& p, int block_x, int64_t section_heads,
                      bool longest_first, unsigned int& blocks) {
  const int64_t heads = p.batch * p.heads_kv;
  return tiling(p, false, block_x,
                {.batch_heads = static_cast<uint32_t>(heads),
                 .q_tiles = static_cast<uint32_t>((p.seqlen_kv + block_x - 1) / block_x),
                 .section_heads = static_cast<uint32_t>(
                     std::clamp<int64_t>(section_heads, 1, std::max<int64_t>(heads, 1))),
                 .longest_first = longest_first},
                blocks);
}

// Heads whose queries and dO lie in L2 together take turns, so that few blocks of one head of a joint
// kernel run at once: those wait for each other.
int64_t joint_section_heads(const ForwardProblem& p) {
  const int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  const int64_t head_bytes = (p.head_dim_qk + p.head_dim_v) * 2 * p.seqlen_q * group;
  return kSectionBytes / std::max<int64_t>(head_bytes, 1);
}

// Everything but the pointers.
Params make_params(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  const ElementType computed =
      computes_in_fp32(problem) ? ElementType::f32 : host::element_type(p.dtype);
  Params params{};
  host::set_forward_params(params, p);
  params.q_tiles = source(p, p.q, p.dtype, true, p.head_dim_qk, computed);
  params.k_tiles = source(p, p.k, p.dtype, false, p.head_dim_qk, computed);
  params.v_tiles = source(p, p.v, p.dtype, false, p.head_dim_v, computed);
  params.d_o_tiles = source(p, problem.d_o, p.o_dtype, true, p.head_dim_v, computed);
  params.o_type = host::element_type(p.o_dtype);
  const Source o = source(p, p.o, p.o_dtype, true, p.head_dim_v, params.o_type);
  params.o_chunks = params.o_type != ElementType::f32 && o.chunks && p.head_dim_v <= 256 &&
                    params.d_o_tiles.type == params.o_type && params.d_o_tiles.chunks;
  params.stats_lanes = !params.o_chunks || p.head_dim_v > 128 ? 32 : p.head_dim_v > 64 ? 16 : 8;
  params.d_lse_batch = problem.d_lse.batch, params.d_lse_head = problem.d_lse.head;
  params.d_lse_row = problem.d_lse.row;
  params.dq = target(problem.dq, problem.dq_dtype, p.head_dim_qk);
  params.dk = target(problem.dk, problem.dk_dtype, p.head_dim_qk);
  params.dv = target(problem.dv, problem.dv_dtype, p.head_dim_v);
  const PairInput& d_bias = problem.d_bias;
  params.d_bias = {.data = nullptr,
                   .batch = d_bias.batch,
                   .head = d_bias.head,
                   .query = d_bias.query,
                   .key = d_bias.key,
                   .type = host::element_type(d_bias.dtype),
                   .extents = {}};
  std::copy_n(problem.d_bias_extents, 4, params.d_bias.extents);
  params.d_sinks.head = problem.d_sinks.head;
  params.d_slopes.batch = problem.d_alibi_slopes.batch;
  params.d_slopes.head = problem.d_alibi_slopes.head;
  params.d_slopes.by_batch = problem.d_alibi_slopes_elements != p.heads_q;  // or of one sequence
  params.band = p.band;
  params.softmax_scale = p.softmax_scale;
  params.cap = p.softcap;
  if (p.softcap > 0) {
    params.cap_rate = attention::softcap_params(p.softmax_scale, p.softcap).rate;
  }
  params.bias = pair_matrix(p.bias);
  params.mask = pair_matrix(p.mask);
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  params.sinks = {nullptr, 0, p.sinks.head};
  params.dropout = p.dropout_p > 0;
  params.dropout_threshold = dropout_threshold(p.dropout_p);
  params.dropout_rescale = dropout_rescale(p.dropout_p);
  params.dropout_state_step = p.dropout_state.batch;
  return params;
}

// The row of kJointConfigs, or -1. A joint kernel leaves what rows of queries add to dSinks and
// dSlopes to the others.
int find_joint_config(const BackwardProblem& problem, const DeviceInfo& device) {
  const ForwardProblem& p = problem.forward;
  if (computes_in_fp32(problem) || problem.d_sinks.present || problem.d_alibi_slopes.present) {
    return -1;
  }
  const bool hopper_code =
      device.compute_capability == 90 &&
      device_code(build::targets::backward_sm80, device.compute_capability) == DeviceCode::compiled;
  return joint_config_index(std::max(p.head_dim_qk, p.head_dim_v), hopper_code,
                            static_cast<long long>(device.shared_memory_per_block));
}

bool wants_all_features(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  return computes_in_fp32(problem) || p.softcap > 0 || p.bias.present || p.mask.present ||
         p.alibi_slopes.present || p.dropout_p > 0 || problem.d_sinks.present;
}

// The blocks that dBias is cut into.
unsigned int bias_blocks(const BackwardProblem& problem, const Config& config) {
  const int64_t* const extents = problem.d_bias_extents;
  return static_cast<unsigned int>(extents[0] * extents[1] *
                                   ((extents[2] + config.block_x() - 1) / config.block_x()) *
                                   ((extents[3] + config.block_y - 1) / config.block_y));
}

int64_t aligned(int64_t bytes) {
  const int64_t most = sum_of({bytes, kWorkspaceAlignment - 1});
  return most == kTooLarge ? most : most / kWorkspaceAlignment * kWorkspaceAlignment;
}

// The launches by tiles: a joint kernel and what stores its dQ, where there is one, then the others.
void add_launches(Planned& planned, const DeviceInfo& device) {
  const BackwardProblem& problem = planned.problem;
  const ForwardProblem& p = problem.forward;
  const bool fp32 = computes_in_fp32(problem);
  const std::string_view element = launch::element_name(fp32 ? DType::f32 : p.dtype);
  const bool all = wants_all_features(problem);
  unsigned int q_blocks = 0, k_blocks = 0;
  const auto add = [&](std::string_view output, int config, bool level, unsigned int blocks) {
    planned.launches.push_back(
        {fmt::format("{}_config{}_{}_{}", element, config, output, level ? "all" : "none"),
         blocks});
  };
  planned.joint_config = find_joint_config(problem, device);
  if (planned.joint_config >= 0) {
    const JointConfig joint =
        joint_config_of(planned.joint_config, all ? Features::all : Features::none);
    planned.params.by_joint_keys =
        tiling_of_keys(p, joint.block_kv(), joint_section_heads(p), true, k_blocks);
    planned.params.by_joint_queries = tiling_of_queries(p, joint.block_q, q_blocks);
    add("joint", planned.joint_config, all, k_blocks);
    planned.launches.push_back({fmt::format("store_dq_config{}", planned.joint_config), q_blocks});
  }
  const int index = config_index(fp32, std::max(p.head_dim_qk, p.head_dim_v));
  // Its rows do not depend on features.
  const Config& config = kConfigs[static_cast<size_t>(index)];
  planned.params.by_queries = tiling_of_queries(p, config.block_x(), q_blocks);
  planned.params.by_keys =
      tiling_of_keys(p, config.block_x(), p.batch * p.heads_kv, p.band.right >= 0, k_blocks);
  // After a joint kernel these compute only what was not finite: one level serves.
  const bool level = all || planned.joint_config >= 0;
  if (has_both(config)) {
    add("dk_dv", index, level, k_blocks);
  } else {
    add("dk", index, level, k_blocks);
    add("dv", index, level, k_blocks);
  }
  add("dq", index, level, q_blocks);
  if (problem.d_bias.present) {
    add("d_bias", index, true, bias_blocks(problem, config_of(index, Features::all)));
  }
}

// The workspace: row statistics, what rows add to sums, then what blocks of a joint kernel share.
Result<size_t> lay_out(Planned& planned) {
  const BackwardProblem& problem = planned.problem;
  const ForwardProblem& p = problem.forward;
  planned.rows = product_of({p.heads_q, p.packed ? p.total_q : product_of({p.batch, p.seqlen_q})});
  int64_t sums_bytes = 0, counter_bytes = 0;
  if (planned.joint_config >= 0) {
    JointWorkspace& joint = planned.params.joint;
    // Features do not change what counts here.
    const JointConfig& config = kJointConfigs[static_cast<size_t>(planned.joint_config)];
    joint.head_tiles = joint_head_tiles(p.packed, rows_of(p, true), p.batch, config.block_q);
    const int64_t tiles = product_of({p.packed ? 1 : p.batch, p.heads_q, joint.head_tiles});
    joint.counters =
        sum_of({planned.ordered ? product_of({tiles, config.warps}) : 0, kJointCounters});
    sums_bytes = aligned(product_of({tiles, config.q_bytes(), 2}));
    if (!planned.ordered) joint.zeros = sums_bytes / static_cast<int64_t>(sizeof(float4));
    counter_bytes = aligned(product_of({joint.counters, sizeof(unsigned long long)}));
  }
  const int64_t row_stats = aligned(product_of({planned.rows, sizeof(float2)}));
  const int64_t terms = aligned(product_of({planned.rows, sizeof(float)}));
  planned.sink_offset = row_stats;
  planned.slope_offset = sum_of({row_stats, problem.d_sinks.present ? terms : 0});
  planned.sums_offset = sum_of({planned.slope_offset, problem.d_alibi_slopes.present ? terms : 0});
  planned.counters_offset = sum_of({planned.sums_offset, sums_bytes});
  const int64_t bytes = sum_of({planned.counters_offset, counter_bytes});
  if (bytes == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "q: needs a workspace of 2^63 bytes or more, wanted less");
  }
  return static_cast<size_t>(bytes);
}

void bind(Params& params, const Planned& planned, const BackwardArguments& args,
          std::span<std::byte> workspace) {
  const BackwardProblem& problem = planned.problem;
  const ForwardProblem& p = problem.forward;
  host::bind_forward_params(params, p, args.forward);
  const auto read = [](Source& source, const void* data) {
    source.matrix.data = data;
    source.chunks = source.chunks && host::is_aligned(data);
  };
  read(params.q_tiles, args.forward.q);
  read(params.k_tiles, args.forward.k);
  read(params.v_tiles, args.forward.v);
  read(params.d_o_tiles, args.d_o);
  const auto write = [](Target& target, void* data) {
    const uintptr_t pair = target.type == ElementType::f32 ? 8 : 4;
    target.data = data;
    target.chunks = target.chunks && host::is_aligned(data);
    target.pairs = target.pairs && reinterpret_cast<uintptr_t>(data) % pair == 0;
  };
  write(params.dq, args.dq);
  write(params.dk, args.dk);
  write(params.dv, args.dv);
  params.o_chunks = params.o_chunks && params.d_o_tiles.chunks && host::is_aligned(params.o);
  if (!params.o_chunks) params.stats_lanes = 32;
  params.d_lse = problem.has_d_lse ? static_cast<const float*>(args.d_lse) : nullptr;
  params.bias.data = p.bias.present ? args.forward.bias : nullptr;
  params.mask.data = p.mask.present ? args.forward.mask : nullptr;
  params.alibi_slopes.data = p.alibi_slopes.present ? args.forward.alibi_slopes : nullptr;
  params.sinks.data = p.sinks.present ? args.forward.sinks : nullptr;
  params.dropout_state = p.dropout_state.present ? args.forward.dropout_state : nullptr;
  if (params.dropout) {
    params.dropout_key = dropout_key(args.forward.dropout_seed, args.forward.dropout_offset);
  }
  params.rows = reinterpret_cast<float2*>(workspace.data());
  if (planned.joint_config >= 0) {
    JointWorkspace& joint = params.joint;
    joint.dq_sums = reinterpret_cast<float*>(workspace.data() + planned.sums_offset);
    joint.next_block =
        reinterpret_cast<unsigned long long*>(workspace.data() + planned.counters_offset);
    joint.not_finite = joint.next_block + 1;
    joint.turns = planned.ordered ? joint.next_block + kJointCounters : nullptr;
  }
  if (problem.d_bias.present) params.d_bias.data = args.d_bias;
  if (problem.d_sinks.present) {
    params.d_sinks.data = static_cast<float*>(args.d_sinks);
    params.d_sinks.rows = reinterpret_cast<float*>(workspace.data() + planned.sink_offset);
  }
  if (problem.d_alibi_slopes.present) {
    params.d_slopes.data = static_cast<float*>(args.d_alibi_slopes);
    params.d_slopes.rows = reinterpret_cast<float*>(workspace.data() + planned.slope_offset);
  }
}

launch::Grid grid_of(int64_t blocks) { return {.blocks = dim3(static_cast<unsigned int>(blocks))}; }

// Rows of a packed batch that belong to no sequence are only known on the device.
Status zero_packed(const Planned& planned, const Params& params, const launch::Launcher& launcher) {
  const ForwardProblem& p = planned.problem.forward;
  const struct {
    const Target& target;
    int64_t heads, rows;
  } targets[] = {{params.dq, p.heads_q, p.total_q},
                 {params.dk, p.heads_kv, p.total_kv},
                 {params.dv, p.heads_kv, p.total_kv}};
  for (const auto& [target, heads, rows] : targets) {
    const int64_t all = heads * rows;  // a warp each
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(
        planned.zero_rows, grid_of((all + kRowWarps - 1) / kRowWarps), target, all, rows));
  }
  return {};
}

Status run(const Planned& planned, const BackwardArguments& args, std::span<std::byte> workspace,
           const launch::Launcher& launcher) {
  const ForwardProblem& p = planned.problem.forward;
  Params params = planned.params;
  bind(params, planned, args, workspace);
  if (p.packed) FLASHCORE_RETURN_IF_ERROR(zero_packed(planned, params, launcher));
  if ((planned.rows > 0 && p.batch > 0) || planned.joint_config >= 0) {
    const int64_t rows_per_block = kRowThreads / params.stats_lanes;
    const int64_t blocks =
        std::max<int64_t>((planned.rows + rows_per_block - 1) / rows_per_block, 1);
    FLASHCORE_RETURN_IF_ERROR(
        launcher.launch(planned.find_row_stats, grid_of(blocks), params, planned.rows));
  }
  for (const Launch& one : planned.launches) {
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(one.kernel, grid_of(one.blocks), params));
  }
  for (const HeadSum* sum : {&params.d_sinks, &params.d_slopes}) {
    if (sum->data == nullptr) continue;
    const int64_t sums = p.heads_q * (sum->by_batch ? p.batch : 1);
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.add_rows, grid_of(sums), params, *sum));
  }
  return {};
}

Result<PlannedBackward> plan(const BackwardProblem& problem, const PlanContext& context) {
  Planned planned{.problem = problem, .params = make_params(problem)};
  planned.ordered = context.deterministic || context.batch_invariant;
  add_launches(planned, context.device);
  const Result<size_t> workspace_bytes = lay_out(planned);
  if (!workspace_bytes.ok()) return workspace_bytes.status();
  const int device = context.device.device.index;
  const launch::Loader loader(kName, device);
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.zero_rows, kName, "zero_rows"));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.find_row_stats, kName, "find_row_stats"));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.add_rows, kName, "add_rows"));
  for (Launch& one : planned.launches) {
    FLASHCORE_RETURN_IF_ERROR(loader.load(one.kernel, kName, one.instance));
  }
  return launch::planned<PlannedBackward>(
      kName, device, *workspace_bytes,
      [planned](const BackwardArguments& args, std::span<std::byte> workspace,
                const launch::Launcher& launcher) {
        return run(planned, args, workspace, launcher);
      });
}

}  // namespace

Variant variant() {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .targets = build::targets::backward_sm80,
          .backward = {.supports = supports(), .plan = plan}};
}

}  // namespace flashcore::cuda::backward_sm80::general
