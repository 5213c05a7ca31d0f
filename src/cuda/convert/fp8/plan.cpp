#include "cuda/convert/fp8/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "cuda/convert/fp8/layout.hpp"
#include "cuda/convert/fp8/params.hpp"
#include "cuda/convert/fp8/supports.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/device_code.hpp"
#include "problem/row_strides.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert::fp8 {
namespace {

constexpr std::string_view kName = "forward_converted:fp8", kFamily = "convert";

struct Planned {
  InputParams inputs;
  OutputParams outputs;
  bool in_chunks[3], o_in_chunks;  // but for where they begin
  Layout layout;
  launch::Kernel convert_inputs, convert_outputs;
  bool early;
  bool has_rows;
};

Rows rows_of(const Placed& placed) {
  const auto chunks = static_cast<uint32_t>(placed.pitch / kChunk);
  Rows rows;
  rows.count = static_cast<uint32_t>(placed.batch * placed.heads * placed.rows);
  rows.heads_inner = placed.heads_inner;
  rows.lanes = static_cast<int>(std::clamp<uint32_t>(std::bit_ceil(chunks), 1, 32));
  if (rows.count == 0) return rows;
  const auto heads = static_cast<uint32_t>(placed.heads), own = static_cast<uint32_t>(placed.rows);
  rows.inner = placed.heads_inner ? heads : own;
  rows.outer = placed.heads_inner ? own : heads;
  rows.by_inner = attention::divisor(rows.inner);
  rows.by_outer = attention::divisor(rows.outer);
  return rows;
}

// block: rows that one scale serves.
Scales scales_of(const ScaleInput& scale, int64_t block, int64_t rows, bool packed) {
  const int64_t each = std::clamp<int64_t>(block, 1, INT32_MAX);
  return {.data = nullptr,
          .batch = scale.batch,
          .head = scale.head,
          .block = scale.block,
          .by_block = attention::divisor(static_cast<uint32_t>(each)),
          .blocks = static_cast<int>(std::max<int64_t>((rows + each - 1) / each, 1)),
          .by_entry = packed && (scale.batch != 0 || scale.block != 0)};
}

ScaleInput as_scale(const VectorInput& scale) {
  return {.present = scale.present, .batch = scale.batch, .head = scale.head, .block = 0};
}

// Returns whether every row begins at a multiple of 8 elements, if the first does.
bool in_chunks(const RowStrides& stride, const Placed& placed, int64_t columns) {
  return columns % kChunk == 0 &&
         misaligned_rows("", stride, DType::bf16, placed.batch, placed.heads, placed.rows).empty();
}

Input input_of(const RowStrides& from, const Placed& placed, int64_t columns, DType dtype,
               const Scales& scales) {
  return {.from = {nullptr, from.batch, from.head, from.row},
          .to = nullptr,
          .rows = rows_of(placed),
          .scales = scales,
          .columns = static_cast<int>(columns),
          .pitch = static_cast<int>(placed.pitch),
          .e5m2 = dtype == DType::f8e5m2};
}

// 2^n, so that the largest element of K and of V becomes 224, or twice that.
float lift_of(DType dtype) { return dtype == DType::f8e5m2 ? 0x1p-8F : 0x1p-1F; }

void set_powers(Planned& planned, const ForwardProblem& p) {
  const Layout& layout = planned.layout;
  InputParams& params = planned.inputs;
  const float lifts[] = {lift_of(p.k_dtype), lift_of(p.v_dtype)};
  for (Input& in : params.inputs) in.f16 = layout.dtype == DType::f16;
  params.by_group = planned.outputs.by_group = attention::divisor(
      static_cast<uint32_t>(p.heads_kv > 0 ? std::max<int64_t>(p.heads_q / p.heads_kv, 1) : 1));
  for (int i = 0; i < 2; ++i) {
    if (layout.keeps_powers[i]) continue;
    params.inputs[i + 1].powers = Powers::left_out;
    params.inputs[i + 1].lift = lifts[i];
  }
  if (!layout.keeps_powers[0]) {
    params.inputs[0].powers = Powers::brought_in;
    params.inputs[0].lift = 1 / lifts[0];
  }
  planned.outputs.f16 = layout.dtype == DType::f16;
  if (layout.keeps_powers[1]) return;
  planned.outputs.powers = Powers::brought_in;
  planned.outputs.lift = 1 / lifts[1];
}

void set_inputs(Planned& planned, const ForwardProblem& p) {
  const Layout& layout = planned.layout;
  InputParams& params = planned.inputs;
  host::set_forward_params(params, p);
  params.inputs[0] = input_of(p.q, layout.q, p.head_dim_qk, p.dtype,
                              scales_of(as_scale(p.q_scale), p.seqlen_q, p.seqlen_q, p.packed));
  params.inputs[0].is_q = true;
  params.inputs[1] = input_of(p.k, layout.k, p.head_dim_qk, p.k_dtype,
                              scales_of(p.k_scale, p.kv_scale_block, p.seqlen_kv, p.packed));
  params.inputs[2] = input_of(p.v, layout.v, p.head_dim_v, p.v_dtype,
                              scales_of(p.v_scale, p.kv_scale_block, p.seqlen_kv, p.packed));
  planned.in_chunks[0] = in_chunks(p.q, layout.q, p.head_dim_qk);
  planned.in_chunks[1] = in_chunks(p.k, layout.k, p.head_dim_qk);
  planned.in_chunks[2] = in_chunks(p.v, layout.v, p.head_dim_v);
  unsigned int blocks = 0;
  for (int i = 0; i < 3; ++i) {
    if (planned.has_rows) blocks += params.inputs[i].rows.blocks();
    params.first_blocks[i] = blocks;
  }
  params.largest = {nullptr, p.amax_o.batch, p.amax_o.head, static_cast<int>(p.amax_o.batches),
                    static_cast<int>(p.amax_o.heads)};
}

void set_outputs(Planned& planned, const ForwardProblem& p) {
  const Placed& o = planned.layout.o;
  OutputParams& params = planned.outputs;
  host::set_forward_params(params, p);
  params.rows = rows_of(o);
  params.pitch = static_cast<int>(o.pitch);
  params.type = host::element_type(p.o_dtype);
  params.scales = scales_of(as_scale(p.o_scale), p.seqlen_q, p.seqlen_q, p.packed);
  params.largest = planned.inputs.largest;
  params.v_scales = planned.inputs.inputs[2].scales;
  params.by_entry =
      params.scales.by_entry || params.v_scales.by_entry || (p.packed && p.amax_o.batch != 0);
  planned.o_in_chunks = in_chunks(p.o, o, p.head_dim_v);
}

template <class T>
T* at(std::span<std::byte> workspace, const Placed& placed) {
  return reinterpret_cast<T*>(workspace.data() + placed.offset);
}

bool begins_chunk(const void* data, size_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % std::min<size_t>(bytes, 16) == 0;
}

uint32_t* largest_of(const ForwardProblem& p, const Arguments& args) {
  return p.amax_o.present ? reinterpret_cast<uint32_t*>(args.amax_o) : nullptr;
}

InputParams bound_inputs(const ForwardProblem& p, const Planned& planned, const Arguments& args,
                         std::span<std::byte> workspace) {
  InputParams params = planned.inputs;
  host::bind_forward_params(params, p, args);
  params.largest.data = largest_of(p, args);
  const bool has_keys = p.seqlen_kv > 0;  // without them these have no element either
  const struct {
    const void* data;
    const float* scale;
    const Placed* to;
  } bound[] = {{args.q, p.q_scale.present ? args.q_scale : nullptr, &planned.layout.q},
               {args.k, p.k_scale.present && has_keys ? args.k_scale : nullptr, &planned.layout.k},
               {args.v, p.v_scale.present && has_keys ? args.v_scale : nullptr, &planned.layout.v}};
  for (int i = 0; i < 3; ++i) {
    Input& in = params.inputs[i];
    in.from.data = bound[i].data;
    in.scales.data = bound[i].scale;
    in.to = at<uint16_t>(workspace, *bound[i].to);
    in.whole_chunks = planned.in_chunks[i] && begins_chunk(in.from.data, kChunk);
  }
  return params;
}

OutputParams bound_outputs(const ForwardProblem& p, const Planned& planned, const Arguments& args,
                           std::span<std::byte> workspace) {
  OutputParams params = planned.outputs;
  host::bind_forward_params(params, p, args);
  params.from = at<const uint16_t>(workspace, planned.layout.o);
  params.largest.data = largest_of(p, args);
  params.scales.data = p.o_scale.present ? args.o_scale : nullptr;
  params.v_scales.data = p.v_scale.present && p.seqlen_kv > 0 ? args.v_scale : nullptr;
  params.whole_chunks = planned.o_in_chunks && begins_chunk(args.o, kChunk * size_of(p.o_dtype));
  return params;
}

Arguments inner_arguments(const Planned& planned, const Arguments& args,
                          std::span<std::byte> workspace) {
  const Layout& layout = planned.layout;
  Arguments inner = args;
  inner.q = at<const void>(workspace, layout.q);
  inner.k = at<const void>(workspace, layout.k);
  inner.v = at<const void>(workspace, layout.v);
  if (layout.converts_o) inner.o = at<void>(workspace, layout.o);
  inner.q_scale = inner.k_scale = inner.v_scale = inner.o_scale = nullptr;
  inner.amax_o = nullptr;
  return inner;
}

// The first of them also clear the largest values.
unsigned int input_blocks(const InputParams& params) {
  const int64_t cleared = int64_t{params.largest.batches} * params.largest.heads;
  return std::max(static_cast<unsigned int>((cleared + kThreads - 1) / kThreads),
                  params.first_blocks[2]);
}

Status run(const ForwardProblem& p, const Planned& planned, const PlannedKernel& inner,
           const Arguments& args, std::span<std::byte> workspace,
           const launch::Launcher& launcher) {
  const InputParams inputs = bound_inputs(p, planned, args, workspace);
  FLASHCORE_RETURN_IF_ERROR(
      launcher.launch(planned.convert_inputs,
                      {.blocks = dim3(input_blocks(inputs)), .early = planned.early}, inputs));
  if (!planned.has_rows) return {};  // O has no element
  FLASHCORE_RETURN_IF_ERROR(inner.run(inner_arguments(planned, args, workspace),
                                      workspace.subspan(static_cast<size_t>(planned.layout.rest)),
                                      {launcher.stream()}));
  if (!planned.layout.converts_o) return {};
  const OutputParams outputs = bound_outputs(p, planned, args, workspace);
  return launcher.launch(planned.convert_outputs, {.blocks = dim3(outputs.rows.blocks())}, outputs);
}

// Returns whether a launch may begin before the earlier one has ended: its code waits for that.
bool waits_for_earlier(const DeviceInfo& device) {
  return device.compute_capability == 90 &&
         device_code(build::targets::convert, device.compute_capability) == DeviceCode::compiled;
}

PlanContext inner_context(PlanContext context) {
  context.config.clear();
  context.early_start = waits_for_earlier(context.device);  // earlier work is the conversion
  return context;
}

Inner inner_of(const ForwardProblem& p, const PlanContext& context, ChooseInner choose) {
  return choose(as_16_bit(p, layout_of(p)), inner_context(context));
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context,
                           ChooseInner choose) {
  Planned planned{};
  planned.layout = layout_of(p);
  const ForwardProblem half = as_16_bit(p, planned.layout);
  Result<PlannedKernel> attention = plan_inner(kName, half, inner_context(context), choose);
  if (!attention.ok()) return attention.status();
  const int64_t bytes =
      sum_of({planned.layout.rest, static_cast<int64_t>(attention->workspace_bytes)});
  if (bytes == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "q: needs a workspace of 2^63 bytes or more, wanted less");
  }
  planned.early = context.early_start && waits_for_earlier(context.device);
  planned.has_rows = p.batch > 0 && planned.layout.q.heads > 0 && planned.layout.q.rows > 0;
  set_inputs(planned, p);
  set_powers(planned, p);
  if (planned.layout.converts_o) set_outputs(planned, p);
  const int device = context.device.device.index;
  const launch::Loader loader(kName, device);
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.convert_inputs, kFamily, "inputs"));
  FLASHCORE_RETURN_IF_ERROR(loader.load(planned.convert_outputs, kFamily, "outputs"));
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(bytes),
      [p, planned, attention = std::move(*attention)](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(p, planned, attention, args, workspace, launcher);
      });
}

}  // namespace

Variant variant(ChooseInner choose) {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .not_automatic_reason = "numbers past the range of f16 change the result",
          .sources = kFamily,
          .targets = build::targets::convert,
          .supports = but_not(supports(),
                              [choose](const ForwardProblem& p, const PlanContext& context) {
                                return inner_of(p, context, choose).refusal;
                              }),
          .plan = [choose](const ForwardProblem& p, const PlanContext& context) {
            return plan(p, context, choose);
          }};
}

}  // namespace flashcore::cuda::convert::fp8
