#include "cuda/ladder/plan.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/ladder/rung.hpp"
#include "cuda/ladder/supports.hpp"
#include "cuda/ladder/wmma_probe.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::ladder {
namespace {

// The rungs that a problem may get without asking: no other kernel computes fp8.
constexpr std::array<std::string_view, 2> kAutomatic = {"14_fp8_native", "13_fp8_stage_c"};
constexpr uintptr_t kPointerAlignment = 16;

Supports supports_of(const Rung& rung) {
  Arch arch{.least = rung.min_compute_capability};
  if (rung.max_compute_capability != 0) arch.most = rung.max_compute_capability;
  const bool tensor_maps = rung.max_compute_capability == 90;  // the wgmma rung reads through TMA
  return supports(rung.input == RungInput::fp16 ? DType::f16 : DType::f8e4m3, arch, tensor_maps);
}

// What its file was compiled for.
std::string_view targets_of(const Rung& rung) {
  if (rung.min_compute_capability == 80) return build::targets::ladder;
  return rung.min_compute_capability == 89 ? build::targets::ladder_fp8
                                           : build::targets::ladder_wgmma;
}

Strides to_strides(const RowStrides& stride) { return {stride.batch, stride.head, stride.row}; }

// Everything but the pointers.
RungParams to_params(const ForwardProblem& p) {
  RungParams params{};
  params.q_stride = to_strides(p.q);
  params.k_stride = to_strides(p.k);
  params.v_stride = to_strides(p.v);
  params.o_stride = to_strides(p.o);
  params.lse_stride = to_strides(p.lse);
  params.batch = static_cast<int>(p.batch);
  params.heads = static_cast<int>(p.heads_q);
  params.seqlen_q = static_cast<int>(p.seqlen_q);
  params.seqlen_kv = static_cast<int>(p.seqlen_kv);
  params.head_dim = static_cast<int>(p.head_dim_qk);
  params.softmax_scale = p.softmax_scale;
  params.causal = p.band.right == 0;
  switch (p.alignment) {
    case Alignment::top_left:
      params.causal_offset = 0;
      break;
    case Alignment::bottom_right:
      params.causal_offset = p.seqlen_kv - p.seqlen_q;
      break;
    case Alignment::given:
      params.causal_offset = p.causal_offset;
      break;
  }
  params.q_scale_stride[0] = p.q_scale.batch;
  params.q_scale_stride[1] = p.q_scale.head;
  params.k_scale_stride[0] = p.k_scale.batch;
  params.k_scale_stride[1] = p.k_scale.head;
  params.v_scale_stride[0] = p.v_scale.batch;
  params.v_scale_stride[1] = p.v_scale.head;
  return params;
}

Status check_alignment(const Arguments& args) {
  const std::pair<std::string_view, const void*> pointers[] = {
      {"q", args.q}, {"k", args.k}, {"v", args.v}, {"o", args.o}};
  for (const auto& [name, pointer] : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % kPointerAlignment != 0) {
      return invalid("{}: pointer {} is not aligned, wanted a multiple of {}", name, pointer,
                     kPointerAlignment);
    }
  }
  return {};
}

Status run_rung(const Rung& rung, RungParams params, bool has_lse, int device,
                const Arguments& args, std::span<std::byte> workspace, Stream stream) {
  FLASHCORE_RETURN_IF_ERROR(check_alignment(args));
  params.q = args.q;
  params.k = args.k;
  params.v = args.v;
  params.o = args.o;
  params.lse = has_lse ? static_cast<float*>(args.lse) : nullptr;
  params.q_scale = args.q_scale;
  params.k_scale = args.k_scale;
  params.v_scale = args.v_scale;
  params.workspace = workspace.data();

  const host::DeviceGuard guard(device);
  if (guard.error() != cudaSuccess)
    return host::cuda_failure(rung.name, "choosing its GPU", guard.error());
  const cudaError_t error = rung.launch(params, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess) return host::cuda_failure(rung.name, "the launch", error);
  return {};
}

// Rungs address the registers of WMMA fragments; the first plan on a GPU checks the layout there.
Status check_wmma_layout(const Rung& rung, int device) {
  const host::DeviceGuard guard(device);
  bool matches = false;
  const cudaError_t error =
      guard.error() != cudaSuccess ? guard.error() : probe_wmma_layout(&matches);
  if (error != cudaSuccess)
    return host::cuda_failure(rung.name, "probing the layout of fragments", error);
  if (!matches) {
    return unsupported(
        "kernel {}: this GPU has another layout of WMMA fragments than the kernel wants",
        rung.name);
  }
  return {};
}

Result<PlannedKernel> plan_rung(const Rung& rung, const ForwardProblem& p,
                                const PlanContext& context) {
  const RungParams params = to_params(p);
  const int device = context.device.device.index;
  if (Status status = check_wmma_layout(rung, device); !status.ok()) return status;
  return PlannedKernel{
      .workspace_bytes = rung.workspace_bytes(params),
      .run = [rung, params, has_lse = p.has_lse, device](
                 const Arguments& args, std::span<std::byte> workspace, Stream stream) {
        return run_rung(rung, params, has_lse, device, args, workspace, stream);
      }};
}

Variant to_kernel(const Rung& rung) {
  const bool automatic =
      std::find(kAutomatic.begin(), kAutomatic.end(), rung.name) != kAutomatic.end();
  return {.name = rung.name,
          .device = DeviceKind::cuda,
          .automatic = automatic,
          .sources = "ladder",
          .targets = targets_of(rung),
          .supports = supports_of(rung),
          .plan = [rung](const ForwardProblem& p, const PlanContext& context) {
            return plan_rung(rung, p, context);
          }};
}

}  // namespace

std::vector<Variant> variants() {
  std::vector<Variant> table;
  for (const Rung& rung : rungs()) table.push_back(to_kernel(rung));
  std::reverse(table.begin(), table.end());
  return table;
}

}  // namespace flashcore::cuda::ladder
