// What rungs refuse that is not of a set, their order in the table, and which GPUs code is built for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/ladder/supports.hpp"
#include "kernel/device_code.hpp"
#include "plan/table.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::ladder {
namespace {

using testing::IsEmpty;

TEST(LadderRefusals, StridesOfSingleRowsDoNotMatter) {
  Problem p;
  p.q = p.o = TensorDesc::strided(DType::f16, {1, 1, 1, 64}, {3, 5, 7, 1});
  p.k = p.v = TensorDesc::contiguous(DType::f16, {1, 1, 57, 64});
  EXPECT_EQ(tests::refusal(supports(DType::f16, {.least = 80}, true), p), "");
}

TEST(LadderRefusals, Fp8WantsEachScale) {
  Problem p = tests::dense_heads(DType::f8e4m3, 64, 64);
  p.o.dtype = DType::f16;
  p.q_scale = TensorDesc::contiguous(DType::f32, {2, 4});
  p.k_scale = p.v_scale = TensorDesc::contiguous(DType::f32, {2, 4, 1});
  const Supports rung = supports(DType::f8e4m3, {.least = 89}, false);
  EXPECT_EQ(tests::refusal(rung, p), "");
  for (const auto& [name, scale] : {std::pair{"q_scale", &Problem::q_scale},
                                    {"k_scale", &Problem::k_scale},
                                    {"v_scale", &Problem::v_scale}}) {
    Problem without = p;
    (without.*scale).reset();
    EXPECT_EQ(tests::refusal(rung, without),
              std::string(name) + ": is not given, wanted one scale per head");
  }
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
  EXPECT_EQ(refuse_code("80;89;90a", 90), "");
  EXPECT_EQ(refuse_code("80;89;90a", 120),
            "device: compute capability is 12.0, this build has code for 80;89;90a");
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
