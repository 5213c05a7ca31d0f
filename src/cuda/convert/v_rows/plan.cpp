#include "cuda/convert/v_rows/plan.hpp"

#include <cstdint>
#include <span>
#include <utility>

#include "cuda/convert/v_rows/params.hpp"
#include "cuda/convert/v_rows/supports.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/row_strides.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert::v_rows {
namespace {

constexpr std::string_view kName = "forward_converted:v_rows", kFamily = "convert";

struct Planned {
  ForwardProblem problem;
  Params params;  // but for the pointers
  launch::Kernel kernel;
  size_t own_bytes;   // of the workspace: V's rows, before the kernel's
  bool even_strides;  // V's rows are chunks, if the first begins one
};

Params make_params(const ForwardProblem& p) {
  Params params{};
  host::set_forward_params(params, p);
  params.pitch = pitch_of(p);
  const Blocks blocks = blocks_of(p);
  params.column_blocks = static_cast<uint32_t>(blocks.columns);
  params.dim_blocks = static_cast<uint32_t>(blocks.dims);
  params.blocks = static_cast<uint32_t>(blocks.all);
  return params;
}

Status run(const Planned& planned, const PlannedKernel& inner, const Arguments& args,
           std::span<std::byte> workspace, const launch::Launcher& launcher) {
  const ForwardProblem& p = planned.problem;
  Params params = planned.params;
  host::bind_forward_params(params, p, args);
  if (p.cache_leftpad.present) params.seqlens_kv = {};  // keys may begin anywhere then
  params.rows = reinterpret_cast<uint8_t*>(workspace.data());
  params.in_chunks = planned.even_strides && host::is_aligned(args.v);
  FLASHCORE_RETURN_IF_ERROR(
      launcher.launch(planned.kernel, {.blocks = dim3(params.blocks)}, params));
  Arguments with_rows = args;
  with_rows.v = workspace.data();
  return inner.run(with_rows, workspace.subspan(planned.own_bytes), {launcher.stream()});
}

// Its launches begin when V's rows are there.
PlanContext inner_context(PlanContext context) {
  context.config.clear();
  context.early_start = false;
  return context;
}

Result<PlannedKernel> plan(const ForwardProblem& p, const PlanContext& context,
                           ChooseInner choose) {
  const ForwardProblem rows = in_rows(p);
  Result<PlannedKernel> attention = plan_inner(kName, rows, inner_context(context), choose);
  if (!attention.ok()) return attention.status();
  const int64_t bytes = sum_of({rows_bytes(p), static_cast<int64_t>(attention->workspace_bytes)});
  if (bytes == kTooLarge) {
    return Status(StatusCode::invalid_argument,
                  "v: needs a workspace of 2^63 bytes or more, wanted less");
  }
  Planned planned{
      .problem = p,
      .params = make_params(p),
      .kernel = {},
      .own_bytes = static_cast<size_t>(rows_bytes(p)),
      .even_strides =
          misaligned_rows("", p.v, DType::f8e4m3, p.batch, p.heads_kv, p.head_dim_v).empty()};
  const int device = context.device.device.index;
  FLASHCORE_RETURN_IF_ERROR(launch::Loader(kName, device).load(planned.kernel, kFamily, "rows"));
  return launch::planned<PlannedKernel>(
      kName, device, static_cast<size_t>(bytes),
      [planned, attention = std::move(*attention)](
          const Arguments& args, std::span<std::byte> workspace, const launch::Launcher& launcher) {
        return run(planned, attention, args, workspace, launcher);
      });
}

}  // namespace

Variant variant(ChooseInner choose) {
  return {.name = std::string(kName),
          .device = DeviceKind::cuda,
          .sources = kFamily,
          .targets = build::targets::convert,
          .supports = but_not(supports(),
                              [choose](const ForwardProblem& p, const PlanContext& context) {
                                return choose(in_rows(p), inner_context(context)).refusal;
                              }),
          .plan = [choose](const ForwardProblem& p, const PlanContext& context) {
            return plan(p, context, choose);
          }};
}

}  // namespace flashcore::cuda::convert::v_rows
