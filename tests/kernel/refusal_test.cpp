// What is not in a kernel's `supports` is refused, in the same words for every kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cuda/backward_sm80/general/supports.hpp"
#include "cuda/backward_sm90/throughput/split/supports.hpp"
#include "cuda/backward_sm90/throughput/supports.hpp"
#include "cuda/backward_sm90/wide/supports.hpp"
#include "cuda/convert/fp8/supports.hpp"
#include "cuda/convert/v_rows/supports.hpp"
#include "cuda/decode_sm80/split_kv/supports.hpp"
#include "cuda/decode_sm90/stream_kv/supports.hpp"
#include "cuda/forward_fp8_sm89/throughput/supports.hpp"
#include "cuda/forward_fp8_sm90/throughput/supports.hpp"
#include "cuda/forward_sm80/latency/supports.hpp"
#include "cuda/forward_sm80/throughput/supports.hpp"
#include "cuda/forward_sm90/common/latency_supports.hpp"
#include "cuda/forward_sm90/throughput/supports.hpp"
#include "cuda/ladder/supports.hpp"
#include "cuda/mla_sm90/latent/supports.hpp"
#include "kernel/kernel.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr;
using enum Feature;

RowStrides dense(int64_t heads, int64_t rows, int64_t head_dim) {
  return {heads * rows * head_dim, rows * head_dim, head_dim};
}

// Attention over f16 without features.
BackwardProblem plain() {
  BackwardProblem problem;
  ForwardProblem& p = problem.forward;
  p.dtype = p.k_dtype = p.v_dtype = p.o_dtype = DType::f16;
  problem.dq_dtype = problem.dk_dtype = problem.dv_dtype = DType::f16;
  p.batch = 2, p.heads_q = p.heads_kv = 4, p.seqlen_q = 33, p.seqlen_kv = 57;
  p.head_dim_qk = p.head_dim_v = 64;
  p.q = p.o = problem.d_o = problem.dq = dense(4, 33, 64);
  p.k = p.v = problem.dk = problem.dv = dense(4, 57, 64);
  p.has_lse = true;
  p.softmax_scale = 0.125F;
  p.kv_scale_block = 57;
  return problem;
}

struct Asked {
  Feature feature;
  std::function<void(BackwardProblem&)> ask;
  std::string_view sentence;
};

// A change to the forward problem.
std::function<void(BackwardProblem&)> of(void (*ask)(ForwardProblem&)) {
  return [ask](BackwardProblem& problem) { ask(problem.forward); };
}
using P = ForwardProblem&;

const std::vector<Asked>& features() {
  static const std::vector<Asked> all = {
      {lse_of_f64, of([](P p) { p.lse_dtype = DType::f64; }), "lse: dtype is f64, wanted f32"},
      {o_apart, of([](P p) { p.o_dtype = DType::f32; }), "o: dtype is f32, wanted q's f16"},
      {narrow_kv, of([](P p) { p.k_dtype = p.v_dtype = DType::f8e4m3; }),
       "k: dtype is f8e4m3, wanted q's f16"},
      {k_apart,
       [](BackwardProblem& problem) {
         problem.forward.dtype = problem.forward.o_dtype = DType::f8e4m3;
         problem.dq_dtype = problem.dk_dtype = problem.dv_dtype = DType::f8e4m3;
         problem.forward.k_dtype = problem.forward.v_dtype = DType::f8e5m2;
       },
       "k: dtype is f8e5m2, wanted q's f8e4m3"},
      {v_apart, of([](P p) { p.v_dtype = DType::bf16; }), "v: dtype is bf16, wanted k's f16"},
      {packed, of([](P p) { p.packed = true, p.total_q = p.total_kv = 9; }),
       "cu_seqlens_q: is given, wanted a batch that is not packed"},
      {seqlens_q, of([](P p) { p.seqlens_q.present = true; }), "seqlens_q: is given, wanted none"},
      {seqlens_kv, of([](P p) { p.seqlens_kv.present = true; }),
       "seqlens_kv: is given, wanted none"},
      {causal_offsets, of([](P p) { p.causal_offsets.present = true; }),
       "causal_offsets: is given, wanted none"},
      {v_head_dim, of([](P p) { p.head_dim_v = 128; }), "v: head dimension is 128, wanted q's 64"},
      {grouped_heads, of([](P p) { p.heads_kv = 2; }), "k: has 2 heads, wanted q's 4"},
      {window_left, of([](P p) { p.band.left = 8; }), "window_left: is 8, wanted -1 (no limit)"},
      {window_right, of([](P p) { p.band.right = 8; }),
       "window_right: is 8, wanted -1 (no limit) or 0 (causal)"},
      {page_table, of([](P p) { p.paging.present = true, p.paging.num_pages = 9; }),
       "page_table: is given, wanted keys and values in one piece"},
      {kv_indices, of([](P p) { p.paging.present = p.paging.flat = true; }),
       "kv_indices: is given, wanted keys and values in one piece"},
      {cache_leftpad, of([](P p) { p.cache_leftpad.present = true; }),
       "cache_leftpad: is given, wanted keys from the first row"},
      {v_transposed, of([](P p) { p.v_transposed = true; }),
       "v_transposed: is given, wanted V in rows of keys"},
      {tree_mask, of([](P p) { p.tree_mask.present = true; }),
       "tree_mask: is given, wanted a mask of pairs"},
      {bias, of([](P p) { p.bias.present = true; }), "bias: is given, wanted none"},
      {mask, of([](P p) { p.mask.present = true; }), "mask: is given, wanted none"},
      {alibi_slopes, of([](P p) { p.alibi_slopes.present = true; }),
       "alibi_slopes: is given, wanted none"},
      {sinks, of([](P p) { p.sinks.present = true; }), "sinks: is given, wanted none"},
      {softcap, of([](P p) { p.softcap = 30; }), "softcap: is 30, wanted 0"},
      {scale_not_positive, of([](P p) { p.softmax_scale = -1; }),
       "softmax_scale: is -1, wanted more than 0"},
      {dropout, of([](P p) { p.dropout_p = 0.5F; }), "dropout_p: is 0.5, wanted 0"},
      {dropout_state, of([](P p) { p.dropout_state.present = true; }),
       "dropout_state: is given, wanted seed and offset as numbers"},
      {block_scales,
       of([](P p) { p.v_scale = {.present = true, .block = 1}, p.kv_scale_block = 9; }),
       "v_scale: has a scale for every 9 keys, wanted one per head"},
      {o_scale, of([](P p) { p.o_scale.present = true; }),
       "o_scale: is given, wanted an O without a scale"},
      {amax_o, of([](P p) { p.amax_o.present = true; }), "amax_o: is given, wanted O and LSE only"},
      {amax_s, of([](P p) { p.amax_s.present = true; }), "amax_s: is given, wanted O and LSE only"},
      {d_lse_of_f64, [](BackwardProblem& p) { p.has_d_lse = true, p.d_lse_dtype = DType::f64; },
       "d_lse: dtype is f64, wanted f32"},
      {gradients_of_f64,
       [](BackwardProblem& p) { p.d_sinks.present = true, p.d_sinks_dtype = DType::f64; },
       "d_sinks: dtype is f64, wanted at most 32 bits"},
      {gradients_apart, [](BackwardProblem& p) { p.dk_dtype = DType::f32; },
       "dk: dtype is f32, wanted q's f16"},
      {unaligned_rows, of([](P p) { p.v.row = 68; }),
       "v: row stride is 68 elements, wanted a multiple of 8 (16 bytes)"},
      {unaligned_gradients, [](BackwardProblem& p) { p.dq.head = 2116; },
       "dq: head stride is 2116 elements, wanted a multiple of 8 (16 bytes)"},
      {unmapped_inputs, of([](P p) { p.k.batch = 0; }),
       "k: batch stride is 0, wanted more than 0 (tensor maps have no others)"},
      {unmapped_o, of([](P p) { p.o.row = -64; }),
       "o: row stride is -64, wanted more than 0 (tensor maps have no others)"},
      {unmapped_gradients, [](BackwardProblem& p) { p.dv.row = 0; },
       "dv: row stride is 0, wanted more than 0 (tensor maps have no others)"}};
  return all;
}

template <class AnyProblem>
std::string refusal(const SupportsOf<AnyProblem>& supports, const AnyProblem& problem,
                    int32_t compute_capability = 90) {
  PlanContext context;
  context.device.compute_capability = compute_capability;
  return refusal_on_gpu(supports, "75+ptx;90a", problem, context);
}

TEST(Refusal, PlainAttentionHasNoFeature) { EXPECT_TRUE(features_of(plain()).empty()); }

TEST(Refusal, EachFeatureIsFoundAndHasItsSentence) {
  Features seen;
  for (const Asked& one : features()) {
    BackwardProblem problem = plain();
    one.ask(problem);
    EXPECT_EQ(features_of(problem), Features(one.feature)) << one.sentence;
    seen = seen | one.feature;
    BackwardSupports supports = everything<BackwardProblem>();
    EXPECT_EQ(refusal(supports, problem), "");
    supports.features = Features::all() - one.feature;
    EXPECT_EQ(refusal(supports, problem), one.sentence);
  }
  EXPECT_EQ(seen, Features::all());
}

// A type that the kernel takes, if not the one that is there.
DType one_of(Dtypes dtypes, DType there) {
  if (dtypes.has(there)) return there;
  for (const DType one : {DType::f16, DType::f32, DType::f8e4m3, DType::f8e5m2}) {
    if (dtypes.has(one)) return one;
  }
  return there;
}

// Every feature outside of a kernel's set is refused in these words.
template <class AnyProblem>
void expect_closed(const SupportsOf<AnyProblem>& supports, std::string_view kernel) {
  for (const Asked& one : features()) {
    if (supports.features.has(one.feature)) continue;
    BackwardProblem asked = plain();
    one.ask(asked);
    ForwardProblem& p = asked.forward;
    const DType q = one_of(supports.q, p.dtype);
    if (one.feature == narrow_kv && size_of(q) == 1) continue;
    if (one.feature != k_apart && q != p.dtype) {
      const bool o_is_q = p.o_dtype == p.dtype, k_is_q = p.k_dtype == p.dtype;
      p.dtype = q;
      if (o_is_q) p.o_dtype = q;
      if (k_is_q) p.k_dtype = q;
      if (p.v_dtype == DType::f16) p.v_dtype = p.k_dtype;
    }
    if (!supports.q.has(p.dtype)) continue;
    if (supports.features.has(o_apart)) p.o_dtype = one_of(supports.o, p.o_dtype);
    SupportsOf<AnyProblem> alone = supports;
    alone.arch = {}, alone.needs = {}, alone.head_dims = {};
    const std::string_view name = one.sentence.substr(0, one.sentence.find(':') + 1);
    if constexpr (std::is_same_v<AnyProblem, ForwardProblem>) {
      if (!features_of(p).has(one.feature)) continue;  // of a backward pass
      EXPECT_THAT(refusal(alone, p), HasSubstr(std::string(name))) << kernel;
    } else {
      EXPECT_THAT(refusal(alone, asked), HasSubstr(std::string(name))) << kernel;
    }
  }
}

TEST(Refusal, WhatAKernelDoesNotSayThatItComputesIsRefused) {
  namespace gpu = cuda;
  namespace sm80 = gpu::forward_sm80::throughput;
  namespace sm90 = gpu::forward_sm90::throughput;
  namespace fp8 = gpu::forward_fp8_sm90::throughput;
  for (const auto kernel : {sm80::Kind::half, sm80::Kind::f32, sm80::Kind::split_kv,
                            sm80::Kind::fp8, sm80::Kind::paged}) {
    expect_closed(sm80::supports(kernel), "forward_sm80");
  }
  expect_closed(sm90::supports(), "forward_sm90_throughput");
  expect_closed(sm90::paged_supports(), "forward_sm90_throughput:paged");
  expect_closed(gpu::forward_sm80::latency::supports(), "forward_sm80_latency");
  expect_closed(gpu::forward_sm90::latency_supports(), "forward_sm90_latency");
  expect_closed(gpu::decode_sm80::split_kv::supports(), "decode_sm80");
  expect_closed(gpu::decode_sm90::stream_kv::supports(), "decode_sm90");
  expect_closed(gpu::mla_sm90::latent::supports(), "mla_sm90");
  expect_closed(fp8::supports(), "forward_fp8_sm90");
  expect_closed(fp8::supports_192x64(), "forward_fp8_sm90:192x64");
  expect_closed(fp8::option_supports(), "forward_fp8_sm90:options");
  expect_closed(gpu::forward_fp8_sm89::throughput::supports(), "forward_fp8_sm89");
  expect_closed(gpu::convert::fp8::supports(), "forward_converted:fp8");
  expect_closed(gpu::convert::v_rows::supports(), "forward_converted:v_rows");
  expect_closed(gpu::ladder::supports(DType::f16, {}, true), "ladder");
  expect_closed(gpu::backward_sm80::general::supports(), "backward_sm80");
  expect_closed(gpu::backward_sm90::throughput::supports(), "backward_sm90");
  expect_closed(gpu::backward_sm90::split::supports(), "backward_sm90:split");
  expect_closed(gpu::backward_sm90::wide::supports(), "backward_sm90:wide");
}

TEST(Refusal, TypesHeadDimensionsRowsAndGpusHaveTheirs) {
  const ForwardProblem p = plain().forward;
  Supports supports = everything<ForwardProblem>();
  const auto expect = [&](const Supports& one, std::string_view sentence, int32_t on = 90) {
    EXPECT_EQ(refusal(one, p, on), sentence);
  };
  expect(supports, "");
  Supports other = supports;
  other.q = {DType::bf16, DType::f32};
  expect(other, "q: dtype is f16, wanted bf16 or f32");
  other = supports, other.o = {DType::f8e4m3, DType::f8e5m2, DType::f32};
  expect(other, "o: dtype is f16, wanted f32, f8e4m3 or f8e5m2");
  other = supports, other.head_dims.most = 63;
  expect(other, "q: head dimension is 64, wanted at most 63");
  other.head_dims = {.most = 256, .step = 128, .least = 128};
  expect(other, "q: head dimension is 64, wanted a multiple of 128 up to 256");
  other = supports, other.rows_below = 57;
  expect(other, "k: has 57 rows, wanted less than 57");
  other = supports, other.needs = dropout_state;
  expect(other, "dropout_state: is not given, wanted it");
  other.needs = feature_sets::kPages | cache_leftpad;
  expect(other, "page_table: is not given, wanted one of page_table, kv_indices or cache_leftpad");
  other = supports, other.arch = {.least = 80};
  expect(other, "device: compute capability is 7.5, wanted 8.0 or later", 75);
  other.arch = {90, 90};
  expect(other, "device: compute capability is 10.0, wanted 9.0", 100);
  other = but_not(supports, [](const ForwardProblem&, const PlanContext&) { return "own"; });
  expect(but_not(other, [](const ForwardProblem&, const PlanContext&) { return "more"; }), "own");
}

}  // namespace
}  // namespace flashcore
