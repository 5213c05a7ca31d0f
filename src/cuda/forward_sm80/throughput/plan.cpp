#include "cuda/forward_sm80/throughput/plan.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numbers>
#include <string>
#include <string_view>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/packed_tiles.hpp"
#include "cuda/attention/softcap.hpp"
#include "cuda/forward_sm80/throughput/config.hpp"
#include "cuda/forward_sm80/throughput/params.hpp"
#include "cuda/forward_sm80/throughput/splits.hpp"
#include "cuda/forward_sm80/throughput/supports.hpp"
#include "cuda/host/cache_params.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/grouped_heads.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/dtypes.hpp"
#include "problem/row_strides.hpp"

namespace flashcore::cuda::forward_sm80::throughput {
namespace {

// Keys and values of a section of heads that runs at once: half of an A100's or H100's L2.
constexpr int64_t kSectionBytes = int64_t{20} << 20;
constexpr int64_t kChunkBytes = 16;
constexpr std::string_view kName = "forward_sm80_throughput";
constexpr std::string_view kWhole = "whole";  // the config without splits
constexpr float kFp32Largest = std::numeric_limits<float>::max();

// Which instance: kConfigs[config] or kPairedRow, its type, and what every tile looks for.
struct Choice {
  DType dtype;
  int config;
  Features features;

  bool operator==(const Choice&) const = default;
};

// An instance, and what it is launched with.
struct Launch {
  LaunchParams params;
  Choice choice;
  unsigned int blocks;
  launch::Kernel kernel;
};

struct Planned {
  Launch own;
  Launch any;  // with all features: where pointers or strides turn out to be unaligned
  launch::Kernel combine, zero, lowest;
};

const Config& config_of(const Choice& choice) {
  const bool paired = choice.config == kPairedRow;
  return kConfigs[static_cast<size_t>(paired ? kPairedConfig.fallback : choice.config)];
}

int block_q_of(const Choice& choice) {
  return choice.config == kPairedRow ? kPairedConfig.block_q() : config_of(choice).block_q();
}

// The instance that computes all that `choice` does, and everything else too.
Choice with_all_features(Choice choice) {
  if (choice.features >= Features::fp8) return choice;
  const int config = choice.config == kPairedRow ? kPairedConfig.fallback : choice.config;
  return {choice.dtype, config_with_all(config), Features::all};
}

std::string_view features_name(Features features) {
  constexpr std::string_view kNames[] = {"none", "scores", "all", "fp8", "paged", "logits"};
  return kNames[static_cast<size_t>(features)];
}

std::string instance_name(const Choice& choice) {
  const std::string_view element = launch::element_name(choice.dtype);
  if (choice.config == kPairedRow) return fmt::format("{}_paired", element);
  return fmt::format("{}_config{}_{}", element, choice.config, features_name(choice.features));
}

int64_t pass_bytes(const RowStrides& stride, DType dtype, const Config& config) {
  return static_cast<int64_t>(size_of(dtype)) * stride.row * config.copied_rows();
}

PairMatrix pair_matrix(const PairInput& input) {
  return {nullptr, input.batch, input.head, input.query, input.key, false};
}

// Returns whether a tensor's rows are aligned 16-byte chunks, except for its beginning. `lead`: what
// its batch stride leads to.
bool has_chunks(const RowStrides& stride, DType dtype, int64_t lead, int64_t heads, int64_t rows,
                int64_t head_dim) {
  return head_dim * static_cast<int64_t>(size_of(dtype)) % kChunkBytes == 0 &&
         misaligned_rows("", stride, dtype, lead, heads, rows).empty();
}

// O may be written in 16-byte pieces if it has 16 bits, and the type that P has or, where inputs
// are stored in fp8, either.
bool has_vectors(const ForwardProblem& p) {
  if (is_fp8(p.dtype)) {
    return !p.amax_o.present && (p.o_dtype == DType::f16 || p.o_dtype == DType::bf16);
  }
  return p.o_dtype == p.dtype && p.dtype != DType::f32;
}

// What Features::scores is told: which hot line, and how far references may be off.
//
// `largest_first`: products that leave no room for later ones to pass the cap's polynomial
// unnoticed; or, without a softcap, that fp32 may not hold in units of log2.
void set_score_line(Params& params, const ForwardProblem& p) {
  constexpr double kFirst = 0.4, kLargest = 0x1p126;
  const bool f16 = p.dtype == DType::f16, capped = p.softcap > 0;
  params.score_line = ScoreLine::none;
  params.score_headroom = f16 ? 5 : 0;
  params.smallest_sum = 0;
  params.largest_first =
      attention::softcap::finite(capped ? kFp32Largest : kLargest / p.scale_log2());
  if (p.bias.present || p.alibi_slopes.present) {
    // References leave out where a bias lowers scores. fp16 P: 2^16 is the largest, 2^-14 the
    // smallest with all of its bits.
    if (p.bias.present) {
      params.score_headroom = 0;
      params.smallest_sum = f16 ? 0x1p-12F : 0x1p-60F;
    }
    const bool far = p.seqlen_q > kFarthest || p.seqlen_kv > kFarthest;
    if (capped || (p.bias.present && p.alibi_slopes.present) || far) return;
    params.score_line = p.bias.present ? ScoreLine::bias : ScoreLine::alibi;
  } else if (capped) {
    const auto near = attention::near_cap(p.softmax_scale, p.softcap);
    if (near.fourth == 0) return;
    params.score_line = ScoreLine::softcap;
    std::copy(std::begin(near.terms), std::end(near.terms), params.cap_terms);
    params.cap_fourth = near.fourth;
    params.largest_first = static_cast<float>(kFirst * near.score);
  }
}

// From products to scores, and what the exact softmax takes for a score.
void set_scores(Params& params, const ForwardProblem& p) {
  using attention::softcap::finite;
  params.cap = p.softcap;
  params.softcap = {0, finite(p.scale_log2()), 0};
  if (p.softcap > 0) {
    params.softcap = attention::softcap_params(p.softmax_scale, p.softcap);
  }
  params.scores_natural =
      p.softcap > 0 || p.bias.present || p.alibi_slopes.present || !p.scale_is_positive();
  params.score_unit = params.scores_natural ? 1 : p.softmax_scale;
  params.score_unit_log2 = finite(params.score_unit * std::numbers::log2e);
}

// Returns whether a kernel may read the elements of `count` neighbouring keys at once, the first one a
// multiple of it, up to the last key.
bool has_groups(const PairMatrix& m, int64_t keys, size_t element_bytes, int count) {
  return m.data != nullptr && m.key == 1 && keys % count == 0 && m.batch % count == 0 &&
         m.head % count == 0 && m.query % count == 0 &&
         reinterpret_cast<uintptr_t>(m.data) % (static_cast<size_t>(count) * element_bytes) == 0;
}

KeyScales key_scales(const ScaleInput& input) {
  return {nullptr, input.batch, input.head, input.block};
}

LargestValues largest_values(const LargestOutput& output) {
  return {nullptr, output.batch, output.head, output.batches, output.heads};
}

// How inputs are stored in fp8, where they are, and what only those kernels write.
void set_fp8(Fp8Params& params, const ForwardProblem& p) {
  params.q_e5m2 = p.dtype == DType::f8e5m2;
  params.kv_e5m2 = p.k_dtype == DType::f8e5m2;
  params.q_scale = {nullptr, p.q_scale.batch, p.q_scale.head};
  params.k_scale = key_scales(p.k_scale);
  params.v_scale = key_scales(p.v_scale);
  params.by_scale_block = attention::divisor(
      static_cast<uint32_t>(std::clamp<int64_t>(p.kv_scale_block, 1, INT32_MAX)));
  if (is_fp8(p.o_dtype)) {
    params.o_fp8 = p.o_dtype == DType::f8e4m3 ? Fp8Output::e4m3 : Fp8Output::e5m2;
  }
  params.o_scale = {nullptr, p.o_scale.batch, p.o_scale.head};
  params.amax_o = largest_values(p.amax_o);
  params.amax_s = largest_values(p.amax_s);
}

void bind_scales(Fp8Params& params, const ForwardProblem& p, const Arguments& args) {
  const bool has_keys = p.seqlen_kv > 0;  // without them K and V have no element
  params.q_scale.data = p.q_scale.present ? args.q_scale : nullptr;
  params.k_scale.data = p.k_scale.present && has_keys ? args.k_scale : nullptr;
  params.v_scale.data = p.v_scale.present && has_keys ? args.v_scale : nullptr;
  params.o_scale.data = p.o_scale.present ? args.o_scale : nullptr;
}

void bind_largest(LaunchParams& params, const ForwardProblem& p, const Arguments& args) {
  params.amax_o.data = p.amax_o.present ? args.amax_o : nullptr;
  params.amax_s.data = p.amax_s.present ? args.amax_s : nullptr;
  params.max_logit.data = p.max_logit.present ? args.max_logit : nullptr;
}

// Strides that lead nowhere may be anything.
ChunkStrides chunk_strides(const RowStrides& stride, const ForwardProblem& p) {
  constexpr int64_t kElements = kChunkBytes / 2;
  const auto chunks = [](int64_t extent, int64_t step) {
    return extent > 1 ? static_cast<uint32_t>(step / kElements) : 0U;
  };
  return {chunks(lead_of_keys(p), stride.batch), chunks(p.heads_kv, stride.head),
          chunks(rows_of_keys(p), stride.row)};
}

// Where keys are in one piece, one page has them all.
void set_cache(LaunchParams& params, const ForwardProblem& p) {
  host::set_cache_params(params.cache, p);
  params.table_step = static_cast<int>(p.paging.table_page);
  if (!p.paging.present) {
    constexpr int kPageSize = std::numeric_limits<int32_t>::max();
    params.cache.page_size = kPageSize;
    params.cache.by_page_size = host::divisor_of(kPageSize);
    params.cache.num_pages = 1;
  }
  params.k_chunks = chunk_strides(p.k, p);
  params.v_chunks = chunk_strides(p.v, p);
}

// Everything but the pointers.
LaunchParams make_params(const ForwardProblem& p, const Config& config, int block_q) {
  LaunchParams params{};
  host::set_forward_params(params, p);
  params.q_pass_bytes = pass_bytes(p.q, p.dtype, config);
  params.k_pass_bytes = pass_bytes(p.k, p.dtype, config);
  params.v_pass_bytes = pass_bytes(p.v, p.dtype, config);
  params.band = p.band;
  params.softmax_scale = p.softmax_scale;
  params.sinks = {nullptr, 0, p.sinks.head};

  params.order = host::tile_order(p, block_q, host::section_rows(p, kSectionBytes));
  // For launches that have blocks; others divide by nothing.
  const auto by = [](int64_t d) {
    return attention::divisor(static_cast<uint32_t>(std::clamp<int64_t>(d, 1, INT32_MAX)));
  };
  params.by_tiles = by(params.order.q_tiles);
  params.by_section = by(int64_t{params.order.section_heads} * params.order.q_tiles);
  params.by_section_heads = by(params.order.section_heads);
  params.by_heads_q = by(p.heads_q);
  params.by_group = by(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1);

  params.splits = 1;
  params.o_type = is_fp8(p.o_dtype) ? ElementType::f32 : host::element_type(p.o_dtype);
  set_scores(params, p);
  set_score_line(params, p);
  params.bias = pair_matrix(p.bias);
  params.mask = pair_matrix(p.mask);
  params.bias_type = host::element_type(p.bias.dtype);
  params.alibi_slopes = {nullptr, p.alibi_slopes.batch, p.alibi_slopes.head};
  params.dropout = p.dropout_p > 0;
  params.dropout_threshold =
      static_cast<uint32_t>(std::min<uint64_t>(dropout_threshold(p.dropout_p), UINT32_MAX));
  params.dropout_rescale = dropout_rescale(p.dropout_p);
  params.dropout_state_step = p.dropout_state.batch;
  set_fp8(params, p);
  params.max_logit = largest_values(p.max_logit);
  set_cache(params, p);
  return params;
}

// The pointers of a run, and what follows from how they are aligned. False: only the kernel with
// all features computes this.
bool bind(LaunchParams& params, const ForwardProblem& p, const Arguments& args) {
  const int64_t batch = p.packed ? 1 : p.batch, rows_q = p.packed ? p.total_q : p.seqlen_q;
  const int64_t lead_kv = lead_of_keys(p), rows_kv = rows_of_keys(p);
  host::bind_forward_params(params, p, args);
  host::bind_cache_params(params.cache, p, args);
  bind_scales(params, p, args);
  bind_largest(params, p, args);
  params.sinks.data = p.sinks.present ? args.sinks : nullptr;
  params.bias.data = p.bias.present ? args.bias : nullptr;
  params.mask.data = p.mask.present ? args.mask : nullptr;
  params.bias.in_pairs = has_groups(params.bias, p.seqlen_kv, size_of(p.bias.dtype), 2);
  params.mask.in_pairs = has_groups(params.mask, p.seqlen_kv, 1, 2);
  params.alibi_slopes.data = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  params.dropout_state = p.dropout_state.present ? args.dropout_state : nullptr;
  if (params.dropout && !p.dropout_state.present) {
    params.dropout_key = dropout_key(args.dropout_seed, args.dropout_offset);
  }

  params.chunks_qk = has_chunks(p.q, p.dtype, batch, p.heads_q, rows_q, p.head_dim_qk) &&
                     has_chunks(p.k, p.dtype, lead_kv, p.heads_kv, rows_kv, p.head_dim_qk) &&
                     host::is_aligned(args.q) && host::is_aligned(args.k);
  params.chunks_v = has_chunks(p.v, p.dtype, lead_kv, p.heads_kv, rows_kv, p.head_dim_v) &&
                    host::is_aligned(args.v);
  params.o_vectors = has_vectors(p) &&
                     has_chunks(p.o, p.o_dtype, batch, p.heads_q, rows_q, p.head_dim_v) &&
                     host::is_aligned(args.o);
  return params.chunks_qk && params.chunks_v && params.o_vectors &&
         (params.bias.data == nullptr ||
          has_groups(params.bias, p.seqlen_kv, size_of(p.bias.dtype), 4));
}

// Rows of partial results.
int64_t partial_rows(const ForwardProblem& p) {
  return p.heads_q * (p.packed ? p.total_q : p.batch * p.seqlen_q);
}

// Returns whether the query heads of a KV head have scales or largest values of their own.
bool has_numbers_by_head(const ForwardProblem& p) {
  return p.q_scale.head != 0 || p.o_scale.head != 0 || p.amax_o.head != 0 || p.amax_s.head != 0 ||
         p.max_logit.head != 0;
}

// Outputs that combine_splits does not write.
bool has_more_outputs(const ForwardProblem& p) {
  return is_fp8(p.o_dtype) || p.amax_o.present || p.amax_s.present || p.max_logit.present;
}

// Cuts the keys; the bytes of workspace that this takes.
size_t split(Launch& launch, const ForwardProblem& p) {
  const Config& config = config_of(launch.choice);
  const int64_t splits = most_splits(p.seqlen_kv);
  launch.params.splits = static_cast<int>(splits);
  launch.blocks *= static_cast<unsigned int>(splits);
  return static_cast<size_t>(split_workspace_bytes(
      partial_rows(p), splits, std::min<int64_t>(p.head_dim_v, config.head_dim_v)));
}

// Where the partial results are, which is only known when there is a workspace.
void bind_partial(Params& params, const ForwardProblem& p, std::span<std::byte> workspace) {
  params.partial_rows = reinterpret_cast<float2*>(workspace.data());
  params.partial_o =
      reinterpret_cast<float*>(params.partial_rows + partial_rows(p) * params.splits);
}

// The launch for columns of V and O from `column` on, as many as the kernel computes.
LaunchParams columns_from(const LaunchParams& all, int64_t column, const Config& config) {
  LaunchParams part = all;
  part.head_dim_v = static_cast<int>(std::min<int64_t>(all.head_dim_v - column, config.head_dim_v));
  part.whole_chunks = all.chunks_qk && all.chunks_v && all.head_dim_qk == config.head_dim_qk &&
                      part.head_dim_v == config.head_dim_v;
  const int64_t o_bytes = all.o_type == ElementType::f32 ? 4 : 2;
  part.v.data = static_cast<const std::byte*>(all.v.data) + config.element_bytes * column;
  part.o = static_cast<std::byte*>(all.o) + o_bytes * column;
  if (column > 0) part.lse = nullptr;  // written by the first
  return part;
}

// Largest values, which have elements even where nothing else has one.
Status fill_largest_values(const ForwardProblem& p, const Planned& planned, const Arguments& args,
                           const launch::Launcher& launcher) {
  LaunchParams params = planned.own.params;
  bind_largest(params, p, args);
  for (const LargestValues* const values : {&params.amax_o, &params.amax_s, &params.max_logit}) {
    if (values->data == nullptr) continue;
    const launch::Kernel& kernel = values == &params.max_logit ? planned.lowest : planned.zero;
    const int64_t blocks = (values->batches * values->heads + kFillThreads - 1) / kFillThreads;
    FLASHCORE_RETURN_IF_ERROR(
        launcher.launch(kernel, {.blocks = dim3(static_cast<unsigned int>(blocks))}, *values));
  }
  return {};
}

// Each kernel takes its part of the parameters.
Status start(const launch::Launcher& launcher, const Launch& launch, const LaunchParams& params) {
  const launch::Grid grid{.blocks = dim3(launch.blocks)};
  switch (launch.choice.features) {
    case Features::fp8:
      return launcher.launch(launch.kernel, grid, static_cast<const Fp8Params&>(params));
    case Features::all:
      return launcher.launch(launch.kernel, grid, static_cast<const StateParams&>(params));
    case Features::paged:
      return launcher.launch(launch.kernel, grid, PagedParams(params));
    case Features::logits:
      return launcher.launch(launch.kernel, grid, LogitParams(params));
    default:
      return launcher.launch(launch.kernel, grid, static_cast<const Params&>(params));
  }
}

Status run(const ForwardProblem& p, const Planned& planned, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  FLASHCORE_RETURN_IF_ERROR(fill_largest_values(p, planned, args, launcher));
  if (planned.own.blocks == 0) return {};  // no other output has an element
  LaunchParams params = planned.own.params;
  const bool own = bind(params, p, args) || planned.own.choice == planned.any.choice;
  const Launch& chosen = own ? planned.own : planned.any;
  if (!own) {
    params = chosen.params;
    bind(params, p, args);
  }
  const Config& config = config_of(chosen.choice);
  if (params.splits > 1) bind_partial(params, p, workspace);
  const int64_t combined = (partial_rows(p) + kCombineRows - 1) / kCombineRows;
  for (int64_t column = 0; column < p.head_dim_v || column == 0; column += config.head_dim_v) {
    const LaunchParams part = columns_from(params, column, config);
    FLASHCORE_RETURN_IF_ERROR(start(launcher, chosen, part));
    if (part.splits == 1) continue;
    FLASHCORE_RETURN_IF_ERROR(launcher.launch(planned.combine,
                                              {.blocks = dim3(static_cast<unsigned int>(combined))},
                                              static_cast<const Params&>(part)));
  }
  return {};
}

Launch make_launch(const ForwardProblem& p, const Choice& choice) {
  const int block_q = block_q_of(choice);
  Launch launch{.params = make_params(p, config_of(choice), block_q),
                .choice = choice,
                .blocks = 0,
                .kernel = {}};
  const int64_t tiles = p.batch * int64_t{launch.params.order.q_tiles};
  const int64_t slots = attention::packed_slots(p.total_q, p.batch, block_q);
  const bool packed = p.packed && slots < tiles;
  if (packed) launch.params.packed_slots = static_cast<int>(slots);
  launch.blocks = static_cast<unsigned int>(p.heads_q * (packed ? slots : tiles));
  return launch;
}

Result<PlannedKernel> plan(const ForwardProblem& asked, const PlanContext& context, Kind kind) {
  // The longest sequence decides whether heads are grouped.
  const ForwardProblem p = context.batch_invariant || has_numbers_by_head(asked)
                               ? asked
                               : host::with_grouped_heads(asked);
  Planned planned{};
  const bool paged = kind == Kind::paged;
  const bool splits =
      kind == Kind::split_kv || (!paged && splits_keys(asked, context) &&
                                 !has_more_outputs(asked) && context.config != kWhole);
  Choice choice = {.dtype = p.dtype,
                   .config = config_index(p),
                   .features = paged ? Features::paged : features_of(p, context.batch_invariant)};
  planned.any = make_launch(p, with_all_features(choice));
  size_t workspace_bytes = 0;
  if (splits) workspace_bytes = split(planned.any, p);
  planned.own = planned.any;
  if (!splits && choice.features != planned.any.choice.features) {
    if (choice.features == Features::none &&
        pairs_serve(choice.config, context.device.shared_memory_per_block)) {
      choice.config = kPairedRow;
    }
    planned.own = make_launch(p, choice);
  }

  const int device = context.device.device.index;
  {
    const launch::Loader loader(kName, device);
    for (Launch* const one : {&planned.own, &planned.any}) {
      FLASHCORE_RETURN_IF_ERROR(loader.load(one->kernel, kName, instance_name(one->choice)));
    }
    if (p.amax_o.present || p.amax_s.present) {
      FLASHCORE_RETURN_IF_ERROR(loader.load(planned.zero, kName, "zero_largest"));
    }
    if (p.max_logit.present) {
      FLASHCORE_RETURN_IF_ERROR(loader.load(planned.lowest, kName, "lowest_largest"));
    }
    if (splits) FLASHCORE_RETURN_IF_ERROR(loader.load(planned.combine, kName, "combine"));
  }
  return launch::planned<PlannedKernel>(
      kName, device, workspace_bytes,
      [p, planned](const Arguments& args, std::span<std::byte> workspace,
                   const launch::Launcher& launcher) {
        return run(p, planned, args, workspace, launcher);
      });
}

Variant variant(std::string_view name, Kind kind) {
  Variant variant{.name = std::string(name),
                  .device = DeviceKind::cuda,
                  .automatic = kind != Kind::split_kv,
                  .tunable = kind == Kind::split_kv,
                  .wants_alignment = kind == Kind::paged,
                  .targets = build::targets::forward_sm80_throughput,
                  .supports = supports(kind),
                  .plan = [kind](const ForwardProblem& p, const PlanContext& context) {
                    return plan(p, context, kind);
                  }};
  if (kind == Kind::split_kv || kind == Kind::paged) return variant;
  variant.candidates = [](const ForwardProblem& p, const PlanContext& context) {
    return splits_keys(p, context) ? std::vector<std::string>{std::string(kWhole)}
                                   : std::vector<std::string>();
  };
  return variant;
}

}  // namespace

std::vector<Variant> variants() {
  // Splits of the keys are chosen by the others where they pay; by name, for any problem.
  return {variant(kName, Kind::half), variant("forward_sm80_throughput:f32", Kind::f32),
          variant("forward_sm80_throughput:split_kv", Kind::split_kv),
          variant("forward_sm80_throughput:fp8", Kind::fp8),
          variant("forward_sm80_throughput:paged", Kind::paged)};
}

}  // namespace flashcore::cuda::forward_sm80::throughput
