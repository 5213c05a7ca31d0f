// What rungs refuse, and by which sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "bench/cases/cases.hpp"
#include "bench/cases/fp8_problem.hpp"
#include "cuda/ladder/supports.hpp"
#include "kernel/device_code.hpp"
#include "plan/table.hpp"

namespace flashcore::cuda::ladder {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kTargets = "80;89;90a";
constexpr RungTraits kFp16Rung{};
constexpr RungTraits kFp8Rung{.input = DType::f8e4m3, .min_compute_capability = 89};
constexpr RungTraits kWgmmaRung{
    .min_compute_capability = 90, .max_compute_capability = 90, .tensor_maps = true};

DeviceInfo gpu(int32_t compute_capability) {
  DeviceInfo info;
  info.device = {DeviceKind::cuda, 0};
  info.compute_capability = compute_capability;
  return info;
}

Problem plain() {
  bench::Case one{.name = "plain", .batch = 2};
  one.heads_q = one.heads_kv = 4;
  one.seqlen_q = 33;
  one.seqlen_kv = 57;
  one.head_dim = 64;
  return bench::to_problem(one);
}

std::string refusal(const Problem& problem, const RungTraits& rung = kFp16Rung,
                    int32_t compute_capability = 90) {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? rung_refusal(*resolved, gpu(compute_capability), rung, kTargets) : "";
}

TEST(LadderRefusals, AcceptsWhatEveryRungComputes) {
  for (const bool causal : {false, true}) {
    for (const int64_t head_dim : {64, 128}) {
      Problem problem = plain();
      problem.causal = causal;
      for (TensorDesc* t : {&problem.q, &problem.o}) {
        *t = TensorDesc::contiguous(DType::f16, {2, 4, 33, head_dim});
      }
      for (TensorDesc* t : {&problem.k, &problem.v}) {
        *t = TensorDesc::contiguous(DType::f16, {2, 4, 57, head_dim});
      }
      for (const Alignment alignment :
           {Alignment::top_left, Alignment::bottom_right, Alignment::given}) {
        problem.alignment = alignment;
        EXPECT_THAT(refusal(problem), IsEmpty());
        EXPECT_THAT(refusal(problem, kWgmmaRung), IsEmpty());
        EXPECT_THAT(refusal(bench::with_fp8_inputs(problem), kFp8Rung), IsEmpty());
      }
    }
  }
}

TEST(LadderRefusals, AcceptsAnyStridesOfAlignedRows) {
  Problem problem = plain();
  problem.q = TensorDesc::strided(DType::f16, {2, 4, 33, 64}, {4 * 33 * 72, 72, 4 * 72, 1});
  problem.k = TensorDesc::strided(DType::f16, {2, 4, 57, 64}, {0, 0, -64, 1});
  EXPECT_THAT(refusal(problem), IsEmpty());
}

struct Refused {
  const char* name;
  std::function<void(Problem&)> change;
  const char* sentence;
};

class EachFeature : public testing::TestWithParam<Refused> {};

TEST_P(EachFeature, IsRefusedByName) {
  Problem problem = plain();
  GetParam().change(problem);
  EXPECT_THAT(refusal(problem), HasSubstr(GetParam().sentence));
}

TensorDesc vector_of(int64_t n, DType dtype = DType::i32) {
  return TensorDesc::contiguous(dtype, {n});
}

const Refused kRefused[] = {
    {"bf16", [](Problem& p) { p.q.dtype = p.k.dtype = p.v.dtype = DType::bf16; },
     "dtype: is bf16, wanted f16"},
    {"f32_output", [](Problem& p) { p.o.dtype = DType::f32; }, "o: dtype is f32, wanted f16"},
    {"f64_lse", [](Problem& p) { p.lse->dtype = DType::f64; }, "lse: dtype is f64, wanted f32"},
    {"head_dim",
     [](Problem& p) {
       p.q = p.o = TensorDesc::contiguous(DType::f16, {2, 4, 33, 96});
       p.k = p.v = TensorDesc::contiguous(DType::f16, {2, 4, 57, 96});
     },
     "head_dim: is 96, wanted 64 or 128"},
    {"value_head_dim",
     [](Problem& p) {
       p.v = TensorDesc::contiguous(DType::f16, {2, 4, 57, 128});
       p.o = TensorDesc::contiguous(DType::f16, {2, 4, 33, 128});
     },
     "v: head_dim is 128, wanted 64"},
    {"grouped_heads",
     [](Problem& p) {
       p.k = p.v = TensorDesc::contiguous(DType::f16, {2, 2, 57, 64});
     },
     "heads_kv: is 2, wanted 4"},
    {"packed",
     [](Problem& p) {
       p.q = p.o = TensorDesc::contiguous(DType::f16, {33, 4, 64});
       p.k = p.v = TensorDesc::contiguous(DType::f16, {57, 4, 64});
       p.lse = TensorDesc::contiguous(DType::f32, {33, 4});
       p.cu_seqlens_q = p.cu_seqlens_kv = vector_of(3);
     },
     "cu_seqlens"},
    {"bias",
     [](Problem& p) {
       p.bias = TensorDesc::contiguous(DType::f32, {1, 1, 33, 57});
     },
     "bias: is not computed"},
    {"mask",
     [](Problem& p) {
       p.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 33, 57});
     },
     "mask: is not computed"},
    {"alibi", [](Problem& p) { p.alibi_slopes = vector_of(4, DType::f32); }, "alibi_slopes"},
    {"sinks", [](Problem& p) { p.sinks = vector_of(4, DType::f32); }, "sinks"},
    {"seqlens_q", [](Problem& p) { p.seqlens_q = vector_of(2); }, "seqlens_q"},
    {"seqlens_kv", [](Problem& p) { p.seqlens_kv = vector_of(2); }, "seqlens_kv"},
    {"causal_offsets",
     [](Problem& p) {
       p.causal = true;
       p.alignment = Alignment::given;
       p.causal_offsets = vector_of(2);
     },
     "causal_offsets"},
    {"softcap", [](Problem& p) { p.softcap = 30; }, "softcap: is 30, wanted 0"},
    {"dropout", [](Problem& p) { p.dropout_p = 0.5F; }, "dropout_p: is 0.5, wanted 0"},
    {"window_left", [](Problem& p) { p.window_left = 8; }, "window_left: is 8, wanted -1"},
    {"window_right", [](Problem& p) { p.window_right = 8; }, "window_right: is 8"},
    {"row_stride",
     [](Problem& p) {
       p.k = TensorDesc::strided(DType::f16, {2, 4, 57, 64}, {57 * 72 * 4, 57 * 72, 68, 1});
     },
     "k: row stride is 68 elements, wanted a multiple of 8"},
    {"head_stride",
     [](Problem& p) {
       p.o =
           TensorDesc::strided(DType::f16, {2, 4, 33, 64}, {4 * (33 * 64 + 8), 33 * 64 + 4, 64, 1});
     },
     "o: head stride is 2116 elements, wanted a multiple of 8"},
};

INSTANTIATE_TEST_SUITE_P(LadderRefusals, EachFeature, testing::ValuesIn(kRefused),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(LadderRefusals, StridesOfSingleRowsDoNotMatter) {
  Problem problem = plain();
  problem.lse.reset();
  problem.q = TensorDesc::strided(DType::f16, {1, 1, 1, 64}, {3, 5, 7, 1});
  problem.o = problem.q;
  problem.k = problem.v = TensorDesc::contiguous(DType::f16, {1, 1, 57, 64});
  EXPECT_THAT(refusal(problem), IsEmpty());
}

TEST(LadderRefusals, TensorMapsWantPositiveStrides) {
  Problem problem = plain();
  problem.v = TensorDesc::strided(DType::f16, {2, 4, 57, 64}, {0, 57 * 64, 64, 1});
  EXPECT_THAT(refusal(problem), IsEmpty());
  EXPECT_THAT(refusal(problem, kWgmmaRung), HasSubstr("v: batch stride is 0, wanted more than 0"));
  problem.v = TensorDesc::strided(DType::f16, {2, 4, 57, 64}, {4 * 57 * 64, 57 * 64, -64, 1});
  EXPECT_THAT(refusal(problem, kWgmmaRung), HasSubstr("v: row stride is -64"));
}

TEST(LadderRefusals, Fp8WantsOneScaleAHead) {
  Problem problem = bench::with_fp8_inputs(plain());
  EXPECT_THAT(refusal(problem), HasSubstr("dtype: is f8e4m3, wanted f16"));
  Problem without = problem;
  without.v_scale.reset();
  EXPECT_THAT(refusal(without, kFp8Rung), HasSubstr("v_scale: is not given"));
  Problem blocks = problem;
  blocks.kv_scale_block = 32;
  blocks.k_scale = TensorDesc::contiguous(DType::f32, {2, 4, 2});
  EXPECT_THAT(refusal(blocks, kFp8Rung), HasSubstr("kv_scale_block: is 32, wanted one block"));
  Problem row = problem;
  row.q = TensorDesc::strided(DType::f8e4m3, {2, 4, 33, 64}, {34 * 80 * 4, 34 * 80, 72, 1});
  EXPECT_THAT(refusal(row, kFp8Rung),
              HasSubstr("q: row stride is 72 elements, wanted a multiple of 16"));
}

TEST(LadderRefusals, ByComputeCapability) {
  EXPECT_THAT(refusal(plain(), kFp16Rung, 75), HasSubstr("is 7.5, wanted 8.0 or later"));
  EXPECT_THAT(refusal(plain(), kFp16Rung, 80), IsEmpty());
  EXPECT_THAT(refusal(plain(), kFp16Rung, 86), IsEmpty());
  EXPECT_THAT(refusal(plain(), kWgmmaRung, 89), HasSubstr("is 8.9, wanted 9.0 or later"));
  EXPECT_THAT(refusal(plain(), kWgmmaRung, 100), HasSubstr("is 10.0, wanted 9.0 at most"));
  EXPECT_THAT(refusal(plain(), kFp16Rung, 120), HasSubstr("is 12.0, this build has code for"));
}

TEST(BuiltFor, FollowsTheRulesOfMachineCode) {
  EXPECT_TRUE(built_for("80", 80));
  EXPECT_TRUE(built_for("80", 86));
  EXPECT_TRUE(built_for("75;80", 89));
  EXPECT_FALSE(built_for("89", 86));
  EXPECT_FALSE(built_for("80;89", 90));
  EXPECT_TRUE(built_for("80;89;90a", 90));
  EXPECT_FALSE(built_for("90a", 91));
  EXPECT_TRUE(built_for("90", 91));
  EXPECT_FALSE(built_for("", 80));
  EXPECT_FALSE(built_for("all", 80));
}

TEST(LadderKernels, AreInTheTableOfACudaBuildBestFirst) {
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device == DeviceKind::cuda && kernel.name.starts_with("0")) {
      names.push_back(kernel.name);
      EXPECT_FALSE(kernel.automatic) << kernel.name;
    }
  }
  if (!build_info().cuda) {
    EXPECT_THAT(names, IsEmpty());
    return;
  }
  ASSERT_GE(names.size(), 10u);
  EXPECT_EQ(names.back(), "00_unfused");
  for (std::string& name : names) name.resize(2);  // variants of a rung have its number
  EXPECT_TRUE(std::is_sorted(names.rbegin(), names.rend()));
}

}  // namespace
}  // namespace flashcore::cuda::ladder
