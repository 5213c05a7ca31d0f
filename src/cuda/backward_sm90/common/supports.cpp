#include "cuda/backward_sm90/common/supports.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::backward_sm90 {
namespace {

constexpr int kCapability = 90;

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::string refuse_types(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  if (!is_16_bit(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f16 or bf16", to_string(p.dtype));
  }
  for (const auto& [name, dtype] : {std::pair{"o", p.o_dtype},
                                    {"dq", problem.dq_dtype},
                                    {"dk", problem.dk_dtype},
                                    {"dv", problem.dv_dtype}}) {
    if (dtype == p.dtype) continue;
    return fmt::format("{}: dtype is {}, wanted that of q, {}", name, to_string(dtype),
                       to_string(p.dtype));
  }
  if (p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  if (problem.has_d_lse && problem.d_lse_dtype != DType::f32) {
    return fmt::format("d_lse: dtype is {}, wanted f32", to_string(problem.d_lse_dtype));
  }
  return {};
}

std::string refuse_features(const ForwardProblem& p) {
  if (p.packed) return "cu_seqlens_q: is given, wanted none";
  if (p.seqlens_q.present) return "seqlens_q: is given, wanted none";
  if (p.seqlens_kv.present) return "seqlens_kv: is given, wanted none";
  if (entries_vary(p)) return "causal_offsets: is given, wanted none";
  if (p.bias.present) return "bias: is given, wanted none";
  if (p.mask.present) return "mask: is given, wanted none";
  if (p.alibi_slopes.present) return "alibi_slopes: is given, wanted none";
  if (p.sinks.present) return "sinks: is given, wanted none";
  if (p.softcap > 0) return fmt::format("softcap: is {}, wanted 0", p.softcap);
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  if (!(p.softmax_scale > 0)) {
    return fmt::format("softmax_scale: is {}, wanted a positive one", p.softmax_scale);
  }
  return {};
}

// Sizes but for those of heads and launches.
std::string refuse_empty(const ForwardProblem& p) {
  if (p.batch == 0 || p.heads_q == 0 || p.seqlen_q == 0) {
    return fmt::format("q: batch is {}, heads {} and length {}, wanted at least 1 of each", p.batch,
                       p.heads_q, p.seqlen_q);
  }
  if (p.heads_kv == 0 || p.seqlen_kv == 0) {
    return fmt::format("k: heads are {} and the length {}, wanted at least 1 of each", p.heads_kv,
                       p.seqlen_kv);
  }
  return host::refuse_rows(p);
}

std::string refuse_layouts(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  const struct {
    const char* name;
    const RowStrides& stride;
    int64_t heads, rows;
    bool mapped;
  } tensors[] = {{"q", p.q, p.heads_q, p.seqlen_q, true},
                 {"k", p.k, p.heads_kv, p.seqlen_kv, true},
                 {"v", p.v, p.heads_kv, p.seqlen_kv, true},
                 {"o", p.o, p.heads_q, p.seqlen_q, false},
                 {"d_o", problem.d_o, p.heads_q, p.seqlen_q, true},
                 {"dq", problem.dq, p.heads_q, p.seqlen_q, false},
                 {"dk", problem.dk, p.heads_kv, p.seqlen_kv, true},
                 {"dv", problem.dv, p.heads_kv, p.seqlen_kv, true}};
  for (const auto& [name, stride, heads, rows, mapped] : tensors) {
    std::string refusal;
    if (mapped) refusal = host::unmappable_strides(name, stride, p.batch, heads, rows);
    if (refusal.empty()) {
      refusal = host::misaligned_rows(name, stride, p.dtype, p.batch, heads, rows);
    }
    if (!refusal.empty()) return refusal;
  }
  return {};
}

}  // namespace

std::string common_refusal(const BackwardProblem& problem, const DeviceInfo& device,
                           std::string_view targets, std::string_view sizes) {
  if (device.compute_capability != kCapability) {
    return fmt::format("device: compute capability is {}, wanted {}",
                       capability_text(device.compute_capability), capability_text(kCapability));
  }
  std::string refusal = refuse_code(targets, kCapability);
  if (refusal.empty()) refusal = refuse_types(problem);
  if (refusal.empty()) refusal = refuse_features(problem.forward);
  if (refusal.empty()) refusal = sizes;
  if (refusal.empty()) refusal = refuse_empty(problem.forward);
  if (refusal.empty()) refusal = refuse_layouts(problem);
  return refusal;
}

}  // namespace flashcore::cuda::backward_sm90
