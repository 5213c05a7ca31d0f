// What rungs refuse, and by which sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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
const Supports kFp16Rung = supports(DType::f16, {.least = 80}, false);
const Supports kFp8Rung = supports(DType::f8e4m3, {.least = 89}, false);
const Supports kWgmmaRung = supports(DType::f16, {90, 90}, true);

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

std::string refusal(const Problem& problem, const Supports& rung = kFp16Rung,
                    int32_t compute_capability = 90) {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok()
             ? refusal_on_gpu(rung, kTargets, *resolved, {.device = gpu(compute_capability)})
             : "";
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

TEST(LadderRefusals, NamesTypesAndHeadDimensions) {
  Problem problem = plain();
  problem.q.dtype = problem.k.dtype = problem.v.dtype = DType::bf16;
  EXPECT_EQ(refusal(problem), "q: dtype is bf16, wanted f16");
  problem = plain();
  problem.o.dtype = DType::f32;
  EXPECT_EQ(refusal(problem), "o: dtype is f32, wanted f16");
  problem = plain();
  problem.q = problem.o = TensorDesc::contiguous(DType::f16, {2, 4, 33, 96});
  problem.k = problem.v = TensorDesc::contiguous(DType::f16, {2, 4, 57, 96});
  EXPECT_EQ(refusal(problem), "q: head dimension is 96, wanted a multiple of 64 up to 128");
}

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

TEST(LadderRefusals, Fp8WantsOneScalePerHead) {
  Problem problem = bench::with_fp8_inputs(plain());
  EXPECT_THAT(refusal(problem), HasSubstr("q: dtype is f8e4m3, wanted f16"));
  Problem without = problem;
  without.v_scale.reset();
  EXPECT_THAT(refusal(without, kFp8Rung), HasSubstr("v_scale: is not given"));
  Problem blocks = problem;
  blocks.kv_scale_block = 32;
  blocks.k_scale = TensorDesc::contiguous(DType::f32, {2, 4, 2});
  EXPECT_THAT(refusal(blocks, kFp8Rung),
              HasSubstr("k_scale: has a scale for every 32 keys, wanted one per head"));
  Problem row = problem;
  row.q = TensorDesc::strided(DType::f8e4m3, {2, 4, 33, 64}, {34 * 80 * 4, 34 * 80, 72, 1});
  EXPECT_THAT(refusal(row, kFp8Rung),
              HasSubstr("q: row stride is 72 elements, wanted a multiple of 16"));
}

TEST(LadderRefusals, ByComputeCapability) {
  EXPECT_THAT(refusal(plain(), kFp16Rung, 75), HasSubstr("is 7.5, wanted 8.0 or later"));
  EXPECT_THAT(refusal(plain(), kFp16Rung, 80), IsEmpty());
  EXPECT_THAT(refusal(plain(), kFp16Rung, 86), IsEmpty());
  EXPECT_THAT(refusal(plain(), kWgmmaRung, 89), HasSubstr("is 8.9, wanted 9.0"));
  EXPECT_THAT(refusal(plain(), kWgmmaRung, 100), HasSubstr("is 10.0, wanted 9.0"));
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
  for (const Variant& kernel : variants()) {
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
