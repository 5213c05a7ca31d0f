#include "tests/cuda/supported_rows.hpp"

#include "tests/kernel/asked_features.hpp"

namespace flashcore::tests {
namespace {

using enum Feature;

// The test's own sets, so that a change of those in src/ is noticed.
constexpr Features kShapes = {packed,     seqlens_q,     seqlens_kv,  causal_offsets,
                              v_head_dim, grouped_heads, window_left, window_right};
constexpr Features kScores = {bias, mask, alibi_slopes, sinks, softcap, scale_not_positive};
constexpr Features kPages = {page_table, kv_indices};
constexpr Features kLargest = {amax_o, amax_s};
constexpr Features kUnaligned = {unaligned_rows, unaligned_gradients};
constexpr Features kUnmapped = {unmapped_inputs, unmapped_o, unmapped_gradients};
constexpr Features kAnyRows = kUnaligned | kUnmapped;
constexpr Features kDropout = {dropout, dropout_state};
constexpr Features kOfF64 = {lse_of_f64, d_lse_of_f64, gradients_of_f64};

constexpr Dtypes k16Bits = {DType::f16, DType::bf16};
constexpr Dtypes k16Or32Bits = {DType::f16, DType::bf16, DType::f32};
constexpr Dtypes kE4m3 = {DType::f8e4m3};
constexpr Dtypes kBothFp8 = {DType::f8e4m3, DType::f8e5m2};
constexpr Dtypes kAllButF64 = {DType::f16, DType::bf16, DType::f32, DType::f8e4m3, DType::f8e5m2};
constexpr Dtypes kAll = {DType::f16,    DType::bf16,   DType::f32,
                         DType::f8e4m3, DType::f8e5m2, DType::f64};

constexpr Arch kHopper = {90, 90}, kFromAmpere = {.least = 80};
constexpr int64_t kAnyRowCount = int64_t{1} << 40;

void in_pages(ForwardProblem& p) {
  p.paging = {.present = true, .num_pages = 9, .page_size = 64, .table_pages = 5};
}
void with_scales(ForwardProblem& p) {
  p.q_scale.present = p.k_scale.present = p.v_scale.present = true;
}
void latent(ForwardProblem& p) {
  p.heads_kv = 1;
  p.k = p.v = {64 * 608, 64 * 608, 608};
  p.paging.num_pages = 9, p.paging.page_size = 64;  // where there is a page table
}
void transposed(ForwardProblem& p) {
  p.v_transposed = true, p.v_columns = 128;
  p.v = {p.heads_kv * p.head_dim_v * 128, p.head_dim_v * 128, 128};
}

SupportedRow rung(std::string_view name, Dtypes q, Arch arch, Features unmapped) {
  return {.variant = name,
          .computes = unmapped | Features{scale_not_positive, o_apart},
          .q = q,
          .o = {DType::f16},
          .qk = {.most = 128, .step = 64, .least = 64},
          .arch = arch,
          .rows_below = kAnyRowCount};
}
SupportedRow fp8_rung(std::string_view name, Arch arch) {
  SupportedRow row = rung(name, kE4m3, arch, kUnmapped);
  row.need = with_scales;
  row.without = "q_scale: is not given, wanted one scale per head";
  return row;
}

SupportedRow latency(std::string_view name, Arch arch, Features unmapped) {
  return {.variant = name,
          .computes = kShapes | unmapped,
          .q = k16Bits,
          .qk = {.most = 128, .step = 8, .least = 8},
          .arch = arch};
}

SupportedRow sm80(std::string_view name, Dtypes q) {
  return {.variant = name,
          .computes = kShapes | kScores | kAnyRows | kDropout | o_apart,
          .q = q,
          .o = k16Or32Bits,
          .qk = {.most = 256},
          .arch = kFromAmpere};
}
SupportedRow sm80_half() {
  SupportedRow row = sm80("forward_sm80_throughput", k16Bits);
  row.computes = row.computes | max_logit;
  return row;
}
SupportedRow sm80_fp8() {
  SupportedRow row = sm80("forward_sm80_throughput:fp8", kBothFp8);
  row.computes = row.computes | kLargest | Features{k_apart, block_scales, o_scale};
  row.o = kAllButF64;
  return row;
}
SupportedRow sm80_paged() {
  SupportedRow row = sm80("forward_sm80_throughput:paged", k16Bits);
  row.computes = kShapes | kPages | kUnmapped | Features{cache_leftpad, sinks};
  row.o = {};
  row.qk.step = row.v.step = 8;
  row.need = in_pages;
  row.without = "page_table: is not given, wanted one of page_table, kv_indices or cache_leftpad";
  return row;
}

SupportedRow sm90() {
  return {.variant = "forward_sm90_throughput",
          .computes = kShapes | Features{sinks, softcap, scale_not_positive},
          .q = k16Bits,
          .qk = {.most = 256, .step = 8},
          .arch = kHopper};
}
SupportedRow sm90_paged() {
  SupportedRow row = sm90();
  row.variant = "forward_sm90_throughput:paged";
  row.computes = row.computes | kPages;
  row.need = in_pages;
  row.without = "page_table: is not given, wanted one of page_table or kv_indices";
  return row;
}

// A bias that is asked for has 16 bits and contiguous keys.
void with_slopes(ForwardProblem& p) {
  p.alibi_slopes.present = true;
  p.bias.dtype = DType::bf16, p.bias.key = 1;
}
SupportedRow sm90_options() {
  SupportedRow row = sm90();
  row.variant = "forward_sm90_throughput:options";
  row.computes = row.computes | Features{bias, mask, alibi_slopes};
  row.need = with_slopes;
  row.without = "bias: is not given, wanted one of bias, mask or alibi_slopes";
  return row;
}

SupportedRow fp8_sm90(std::string_view name, int64_t least = 64) {
  return {.variant = name,
          .computes = (kShapes - Features{packed, v_head_dim}) |
                      Features{sinks, scale_not_positive, v_transposed, o_apart},
          .q = kE4m3,
          .o = k16Or32Bits,
          .qk = {.most = 128, .step = 64, .least = least},
          .arch = kHopper,
          .head_dim_qk = least,
          .head_dim_v = least};
}
SupportedRow fp8_sm89(std::string_view name) {
  return {.variant = name,
          .computes = kShapes | kUnmapped | Features{sinks, softcap, scale_not_positive, o_apart},
          .q = kE4m3,
          .o = k16Or32Bits,
          .qk = {.most = 256, .step = 16, .least = 16},
          .arch = {.least = 89}};
}

SupportedRow backward_sm90(std::string_view name, int64_t head_dim) {
  return {.variant = name,
          .pass = Pass::backward,
          .computes = kShapes | kLargest | max_logit | Features{sinks, softcap, unmapped_o},
          .q = k16Bits,
          .qk = {.most = head_dim, .step = 8, .least = 8},
          .arch = kHopper,
          .head_dim_qk = head_dim,
          .head_dim_v = head_dim};
}
SupportedRow backward_sm90_split() {
  SupportedRow row = backward_sm90("backward_sm90:split", 128);
  row.computes = row.computes - Features{packed, seqlens_q, seqlens_kv, causal_offsets, softcap};
  return row;
}

void with_mask(ForwardProblem& p) { p.mask.present = true; }
SupportedRow backward_sm90_options() {
  SupportedRow row = backward_sm90("backward_sm90:options", 128);
  row.computes = (row.computes - Features{softcap}) | Features{bias, mask, alibi_slopes} | kDropout;
  row.need = with_mask;
  row.without = "bias: is not given, wanted one of bias, mask, alibi_slopes or dropout_p";
  return row;
}

SupportedRow on_cpu(std::string_view name, Pass pass, Features not_computed, Dtypes q, Dtypes o) {
  return {.variant = name,
          .pass = pass,
          .computes = Features::all() - not_computed,
          .q = q,
          .o = o,
          .rows_below = kAnyRowCount};
}

}  // namespace

const std::vector<SupportedRow>& supported_rows() {
  static const std::vector<SupportedRow> all = {
      rung("00_unfused", {DType::f16}, kFromAmpere, kUnmapped),
      rung("12_mma_sync", {DType::f16}, kFromAmpere, kUnmapped),
      fp8_rung("13_fp8_stage_c", kFromAmpere),
      fp8_rung("14_fp8_native", {.least = 89}),
      rung("15_wgmma_tma", {DType::f16}, kHopper, unmapped_o),
      latency("forward_sm80_latency", kFromAmpere, kUnmapped),
      latency("forward_sm90_latency", kHopper, unmapped_o),
      latency("forward_sm90_latency:wide", kHopper, unmapped_o),
      sm80_half(),
      sm80("forward_sm80_throughput:f32", {DType::f32}),
      sm80("forward_sm80_throughput:split_kv", k16Or32Bits),
      sm80_fp8(),
      sm80_paged(),
      sm90(),
      sm90_paged(),
      sm90_options(),
      {.variant = "decode_sm80",
       .computes = kShapes | kScores | kPages | kAnyRows |
                   Features{cache_leftpad, narrow_kv, v_apart, o_apart, tree_mask, block_scales},
       .q = k16Bits,
       .o = k16Or32Bits,
       .qk = {.most = 576},
       .v = {.most = 512},
       .arch = kFromAmpere},
      {.variant = "decode_sm90",
       .computes = kShapes | kPages | kAnyRows |
                   Features{cache_leftpad, narrow_kv, alibi_slopes, sinks, softcap,
                            scale_not_positive, o_apart, tree_mask, block_scales},
       .q = k16Bits,
       .o = k16Or32Bits,
       .qk = {.most = 128},
       .not_together = {tree_mask, narrow_kv}},
      {.variant = "mla_sm90",
       .computes = kShapes | kPages | Features{sinks, softcap, o_apart, cache_leftpad, tree_mask},
       .q = k16Bits,
       .o = k16Or32Bits,
       .qk = {.most = 576, .least = 576},
       .v = {.most = 512, .least = 512},
       .arch = kHopper,
       .head_dim_qk = 576,
       .head_dim_v = 512,
       .need = latent,
       .without = "k: has 4 heads, wanted 1"},
      fp8_sm90("forward_fp8_sm90"),
      fp8_sm90("forward_fp8_sm90:precise"),
      fp8_sm90("forward_fp8_sm90:192x64", 128),
      {.variant = "forward_fp8_sm90:options",
       .computes =
           kShapes | kLargest | Features{sinks, softcap, scale_not_positive, o_apart, o_scale},
       .q = kBothFp8,
       .o = kAllButF64,
       .qk = {.most = 256, .step = 16, .least = 16},
       .arch = kHopper},
      fp8_sm89("forward_fp8_sm89"),
      fp8_sm89("forward_fp8_sm89:precise"),
      {.variant = "forward_converted:fp8",
       .computes = Features::all() - kPages -
                   Features{cache_leftpad, narrow_kv, tree_mask, v_transposed, amax_s, max_logit},
       .q = kBothFp8,
       .o = kAllButF64,
       .qk = {.most = 4096},
       .asks_another = true},
      {.variant = "forward_converted:v_rows",
       .computes = Features::all(),
       .q = kAll,
       .o = kAll,
       .rows_below = kAnyRowCount,
       .need = transposed,
       .without = "v_transposed: is not given, wanted it",
       .asks_another = true},
      {.variant = "backward_sm80",
       .pass = Pass::backward,
       .computes = kShapes | kScores | kAnyRows | kLargest | max_logit | kDropout |
                   Features{o_apart, gradients_apart},
       .q = k16Or32Bits,
       .o = k16Or32Bits,
       .qk = {.most = 256},
       .arch = kFromAmpere},
      backward_sm90("backward_sm90", 128),
      backward_sm90_split(),
      backward_sm90_options(),
      backward_sm90("backward_sm90:wide", 256),
      on_cpu("cpu_simd", Pass::forward, lse_of_f64, kAll, kAllButF64),
      on_cpu("cpu_simd", Pass::backward, kOfF64, kAll, kAllButF64),
      on_cpu("reference", Pass::forward, {}, kAll, kAll),
      on_cpu("reference", Pass::backward, {}, kAll, kAll),
      on_cpu("naive", Pass::forward, {}, k16Bits, kAll),
      on_cpu("naive", Pass::backward, {}, kAll, kAll)};
  return all;
}

}  // namespace flashcore::tests
