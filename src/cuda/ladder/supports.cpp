#include "cuda/ladder/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::ladder {
namespace {

constexpr int64_t kLargestExtent = int64_t{1} << 30;  // tiles and rows are counted in an int
constexpr int64_t kMostPairs = int64_t{1} << 48;      // of query and key: S, in whole tiles

std::string refuses_device(const DeviceInfo& device, const RungTraits& rung,
                           std::string_view targets) {
  const int32_t capability = device.compute_capability;
  if (capability < rung.min_compute_capability) {
    return fmt::format("device: compute capability is {}, wanted {} or later",
                       capability_text(capability), capability_text(rung.min_compute_capability));
  }
  if (rung.max_compute_capability != 0 && capability > rung.max_compute_capability) {
    return fmt::format("device: compute capability is {}, wanted {} at most (wgmma)",
                       capability_text(capability), capability_text(rung.max_compute_capability));
  }
  return refuse_code(targets, capability);
}

std::string refuses_types(const ForwardProblem& p, const RungTraits& rung) {
  if (p.dtype != rung.input) {
    return fmt::format("dtype: is {}, wanted {}", to_string(p.dtype), to_string(rung.input));
  }
  if (p.o_dtype != DType::f16) {
    return fmt::format("o: dtype is {}, wanted f16", to_string(p.o_dtype));
  }
  if (p.has_lse && p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  return {};
}

std::string refuses_shape(const ForwardProblem& p) {
  if (p.packed) return "cu_seqlens: packed batches are not computed here, wanted [B, H, S, D]";
  if (p.head_dim_qk != p.head_dim_v) {
    return fmt::format("v: head_dim is {}, wanted {}, that of q and k", p.head_dim_v,
                       p.head_dim_qk);
  }
  if (p.head_dim_qk != 64 && p.head_dim_qk != 128) {
    return fmt::format("head_dim: is {}, wanted 64 or 128", p.head_dim_qk);
  }
  if (p.heads_q != p.heads_kv) {
    return fmt::format("heads_kv: is {}, wanted {}, the heads of q (no grouped heads)", p.heads_kv,
                       p.heads_q);
  }
  const std::pair<std::string_view, int64_t> extents[] = {{"batch", p.batch},
                                                          {"heads", p.heads_q},
                                                          {"seqlen_q", p.seqlen_q},
                                                          {"seqlen_kv", p.seqlen_kv}};
  for (const auto& [name, extent] : extents) {
    if (extent > kLargestExtent) {
      return fmt::format("{}: is {}, wanted at most 2^30", name, extent);
    }
  }
  int64_t pairs = 1;
  for (const auto& [name, extent] : extents)
    pairs = product_of({pairs, std::max<int64_t>(extent, 1)});
  if (pairs > kMostPairs) {
    return fmt::format(
        "q: {} heads of {} batch entries have {} queries and {} keys, wanted at most "
        "2^48 pairs",
        p.heads_q, p.batch, p.seqlen_q, p.seqlen_kv);
  }
  return {};
}

std::string refuses_features(const ForwardProblem& p) {
  if (p.bias.present) return "bias: is not computed here";
  if (p.mask.present) return "mask: is not computed here";
  if (p.alibi_slopes.present) return "alibi_slopes: are not computed here";
  if (p.sinks.present) return "sinks: are not computed here";
  if (p.seqlens_q.present) return "seqlens_q: are not computed here";
  if (p.seqlens_kv.present) return "seqlens_kv: are not computed here";
  if (p.causal_offsets.present) return "causal_offsets: one per batch entry is not computed here";
  if (p.softcap > 0) return fmt::format("softcap: is {}, wanted 0", p.softcap);
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  if (p.band.left >= 0) {
    return fmt::format("window_left: is {}, wanted -1 (no limit)", p.band.left);
  }
  if (p.band.right > 0) {
    return fmt::format("window_right: is {}, wanted -1 (no limit) or 0 (causal)", p.band.right);
  }
  return {};
}

std::string refuses_scales(const ForwardProblem& p) {
  if (p.dtype != DType::f8e4m3) return {};
  const std::pair<std::string_view, bool> scales[] = {{"q_scale", p.q_scale.present},
                                                      {"k_scale", p.k_scale.present},
                                                      {"v_scale", p.v_scale.present}};
  for (const auto& [name, present] : scales) {
    if (!present) return fmt::format("{}: is not given, wanted one scale per head", name);
  }
  if (p.kv_scale_block < p.seqlen_kv && (p.k_scale.block != 0 || p.v_scale.block != 0)) {
    return fmt::format("kv_scale_block: is {}, wanted one block of all {} keys", p.kv_scale_block,
                       p.seqlen_kv);
  }
  return {};
}

std::string refuses_strides(const ForwardProblem& p, const RungTraits& rung) {
  struct Rows {
    std::string_view name;
    const RowStrides& stride;
    DType dtype;
    int64_t rows;
  };
  const Rows tensors[] = {{"q", p.q, p.dtype, p.seqlen_q},
                          {"k", p.k, p.dtype, p.seqlen_kv},
                          {"v", p.v, p.dtype, p.seqlen_kv},
                          {"o", p.o, p.o_dtype, p.seqlen_q}};
  for (const Rows& one : tensors) {
    std::string refusal =
        host::misaligned_rows(one.name, one.stride, one.dtype, p.batch, p.heads_q, one.rows);
    if (refusal.empty() && rung.tensor_maps && one.name != "o") {
      refusal = host::unmappable_strides(one.name, one.stride, p.batch, p.heads_q, one.rows);
    }
    if (!refusal.empty()) return refusal;
  }
  return {};
}

}  // namespace

std::string rung_refusal(const ForwardProblem& problem, const DeviceInfo& device,
                         const RungTraits& rung, std::string_view targets) {
  std::string refusal = refuses_device(device, rung, targets);
  if (refusal.empty()) refusal = refuses_types(problem, rung);
  if (refusal.empty()) refusal = refuses_shape(problem);
  if (refusal.empty()) refusal = refuses_features(problem);
  if (refusal.empty()) refusal = refuses_scales(problem);
  if (refusal.empty()) refusal = refuses_strides(problem, rung);
  return refusal;
}

}  // namespace flashcore::cuda::ladder
