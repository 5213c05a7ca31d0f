// Quantisation through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "flashcore/flashcore.h"
#include "tests/api/c_problem.hpp"

namespace flashcore::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Two heads of four rows, in blocks of two: row r of head h is 2^(4 h + r) + offset.
struct Blocks {
  std::array<float, 64> x{};
  std::array<uint8_t, 64> out{};
  std::array<float, 4> scale{};
  std::array<float, 16> mean{};
  flashcore_quantize_problem problem{};
  flashcore_quantize_arguments arguments{};

  explicit Blocks(float offset) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::exp2(static_cast<float>(i / 8)) + offset;
    EXPECT_EQ(flashcore_quantize_problem_init(&problem, sizeof problem), FLASHCORE_OK);
    EXPECT_EQ(flashcore_quantize_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
    problem.x = tensor(FLASHCORE_F32, {1, 2, 4, 8});
    problem.x_out = tensor(FLASHCORE_F8E4M3, {1, 2, 4, 8});
    problem.scale = tensor(FLASHCORE_F32, {1, 2, 2});
    problem.scale_block = 2;
    arguments.x = x.data();
    arguments.x_out = out.data();
    arguments.scale = scale.data();
  }
  flashcore_status run() {
    arguments.mean = mean.data();
    return flashcore_quantize(&problem, &arguments, nullptr, nullptr);
  }
};

TEST(CQuantize, ScalesBlocks) {
  Blocks run(0);
  ASSERT_EQ(run.run(), FLASHCORE_OK) << flashcore_last_error();
  EXPECT_THAT(run.scale, ::testing::ElementsAre(2 / 448.0f, 8 / 448.0f, 32 / 448.0f, 128 / 448.0f));
  // 224 and 448: a block's two rows.
  for (size_t i = 0; i < run.out.size(); ++i) EXPECT_EQ(run.out[i], i / 8 % 2 == 0 ? 0x76 : 0x7E);
  EXPECT_THAT(run.mean, Each(0.0f));  // the problem has no mean
}

TEST(CQuantize, SubtractsTheMean) {
  Blocks run(3);
  run.problem.mean = tensor(FLASHCORE_F32, {1, 2, 8});
  ASSERT_EQ(run.run(), FLASHCORE_OK) << flashcore_last_error();
  for (size_t i = 0; i < run.mean.size(); ++i) EXPECT_EQ(run.mean[i], i < 8 ? 6.75f : 63.0f);
  EXPECT_FLOAT_EQ(run.scale[0], 2.75f / 448);
}

TEST(CQuantize, RefusesWhatMakesNoSense) {
  Blocks run(0);
  run.problem.x.rank = 3;
  EXPECT_EQ(run.run(), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("cu_seqlens: is missing"));
  Blocks other(0);
  other.problem.struct_size = 12;
  EXPECT_EQ(other.run(), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("problem: struct_size is 12"));
  EXPECT_EQ(flashcore_quantize(nullptr, &run.arguments, nullptr, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(run.scale, Each(0.0f));
}

// Row r of V is r + 1 in all columns; each row of a dimension holds them in the order of docs/semantics.md.
TEST(CQuantize, TransposesV) {
  std::array<uint8_t, 20 * 2> v{};
  std::array<uint8_t, 2 * 128> out{};
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint8_t>(i / 2 + 1);
  const flashcore_tensor rows = tensor(FLASHCORE_F8E4M3, {1, 1, 20, 2});
  const flashcore_tensor columns = tensor(FLASHCORE_F8E4M3, {1, 1, 2, 128});
  ASSERT_EQ(flashcore_transpose_v(&rows, v.data(), &columns, out.data(), nullptr, nullptr),
            FLASHCORE_OK)
      << flashcore_last_error();
  const std::vector<uint8_t> first = {1, 2, 9,  10, 3,  4,  11, 12, 5,  6,  13, 14,
                                      7, 8, 15, 16, 17, 18, 0,  0,  19, 20, 0};
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], i % 128 < first.size() ? first[i % 128] : 0) << i;
  }
  EXPECT_EQ(flashcore_transpose_v(nullptr, v.data(), &columns, out.data(), nullptr, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("v: pointer is null"));
  const flashcore_tensor few = tensor(FLASHCORE_F8E4M3, {1, 1, 2, 64});
  EXPECT_EQ(flashcore_transpose_v(&rows, v.data(), &few, out.data(), nullptr, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("wanted a multiple of 128"));
}

// Attention over both gives the same numbers.
TEST(CQuantize, AttentionReadsATransposedV) {
  std::array<uint8_t, 2 * 20 * 4> q{}, v{};
  std::array<uint8_t, 2 * 4 * 128> columns{};
  for (size_t i = 0; i < v.size(); ++i) {
    q[i] = static_cast<uint8_t>(0x30 + i * 7 % 16);
    v[i] = static_cast<uint8_t>(0x28 + i * 5 % 24);
  }
  std::array<std::array<float, 2 * 20 * 4>, 2> o{};
  flashcore_problem problem;
  ASSERT_EQ(flashcore_problem_init(&problem, sizeof problem), FLASHCORE_OK);
  problem.q = problem.k = problem.v = tensor(FLASHCORE_F8E4M3, {1, 2, 20, 4});
  problem.o = tensor(FLASHCORE_F32, {1, 2, 20, 4});
  const flashcore_tensor transposed = tensor(FLASHCORE_F8E4M3, {1, 2, 4, 128});
  ASSERT_EQ(
      flashcore_transpose_v(&problem.v, v.data(), &transposed, columns.data(), nullptr, nullptr),
      FLASHCORE_OK);
  for (const int32_t is_transposed : {0, 1}) {
    problem.v_transposed = is_transposed;
    if (is_transposed == 1) problem.v = transposed;
    flashcore_plan* plan = nullptr;
    ASSERT_EQ(flashcore_plan_create(&problem, nullptr, &plan), FLASHCORE_OK)
        << flashcore_last_error();
    flashcore_arguments arguments;
    ASSERT_EQ(flashcore_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
    arguments.q = arguments.k = q.data();
    arguments.v = is_transposed == 1 ? columns.data() : v.data();
    arguments.o = o[static_cast<size_t>(is_transposed)].data();
    EXPECT_EQ(flashcore_plan_run(plan, &arguments, nullptr, 0, nullptr), FLASHCORE_OK)
        << flashcore_last_error();
    flashcore_plan_destroy(plan);
  }
  EXPECT_EQ(o[0], o[1]);
  EXPECT_NE(o[0][0], 0);
  flashcore_plan* plan = nullptr;
  problem.v_transposed = 2;
  EXPECT_EQ(flashcore_plan_create(&problem, nullptr, &plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("v_transposed: is 2, wanted 0 or 1"));
}

}  // namespace
}  // namespace flashcore::testing
