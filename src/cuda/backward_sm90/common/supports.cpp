#include "cuda/backward_sm90/common/supports.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "cuda/attention/packed_tiles.hpp"
#include "cuda/host/launch_limits.hpp"
#include "cuda/host/row_strides.hpp"
#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90 {
namespace {

constexpr int kCapability = 90;

int64_t rows_of(const ForwardProblem& p, bool queries) {
  if (p.packed) return queries ? p.total_q : p.total_kv;
  return queries ? p.seqlen_q : p.seqlen_kv;
}

// Of a head, over all batch entries; in a packed batch by slots of packed_tiles.hpp.
int64_t tile_rows(const ForwardProblem& p, int64_t rows, int64_t block) {
  if (p.packed) return product_of({attention::packed_slots(rows, p.batch, block), block});
  return product_of({p.batch, (rows + block - 1) / block, block});
}

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
  if (problem.d_sinks.present && problem.d_sinks_dtype != DType::f32) {
    return fmt::format("d_sinks: dtype is {}, wanted f32", to_string(problem.d_sinks_dtype));
  }
  if (problem.has_d_lse && problem.d_lse_dtype != DType::f32) {
    return fmt::format("d_lse: dtype is {}, wanted f32", to_string(problem.d_lse_dtype));
  }
  return {};
}

std::string refuse_features(const ForwardProblem& p) {
  if (p.bias.present) return "bias: is given, wanted none";
  if (p.mask.present) return "mask: is given, wanted none";
  if (p.alibi_slopes.present) return "alibi_slopes: is given, wanted none";
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  if (!(p.softmax_scale > 0)) {
    return fmt::format("softmax_scale: is {}, wanted a positive one", p.softmax_scale);
  }
  return {};
}

// Sizes but for those of heads and launches.
std::string refuse_empty(const ForwardProblem& p) {
  const int64_t rows_q = rows_of(p, true), rows_kv = rows_of(p, false);
  if (p.batch == 0 || p.heads_q == 0 || rows_q == 0) {
    return fmt::format("q: batch is {}, heads {} and length {}, wanted at least 1 of each", p.batch,
                       p.heads_q, rows_q);
  }
  if (p.heads_kv == 0 || rows_kv == 0) {
    return fmt::format("k: heads are {} and the length {}, wanted at least 1 of each", p.heads_kv,
                       rows_kv);
  }
  return host::refuse_rows(p);
}

std::string refuse_layouts(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  const struct {
    const char* name;
    const RowStrides& stride;
    bool queries, mapped;
  } tensors[] = {{"q", p.q, true, true},           {"k", p.k, false, true},
                 {"v", p.v, false, true},          {"o", p.o, true, false},
                 {"d_o", problem.d_o, true, true}, {"dq", problem.dq, true, false},
                 {"dk", problem.dk, false, true},  {"dv", problem.dv, false, true}};
  const int64_t batch = p.packed ? 1 : p.batch;
  for (const auto& [name, stride, queries, mapped] : tensors) {
    const int64_t heads = queries ? p.heads_q : p.heads_kv, rows = rows_of(p, queries);
    std::string refusal;
    if (mapped) refusal = host::unmappable_strides(name, stride, batch, heads, rows);
    if (refusal.empty()) {
      refusal = host::misaligned_rows(name, stride, p.dtype, batch, heads, rows);
    }
    if (!refusal.empty()) return refusal;
  }
  return {};
}

}  // namespace

int64_t query_rows(const ForwardProblem& p, int64_t block) {
  return tile_rows(p, rows_of(p, true), block);
}
int64_t key_rows(const ForwardProblem& p, int64_t block) {
  return tile_rows(p, rows_of(p, false), block);
}

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
