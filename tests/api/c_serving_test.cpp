// Caches, merge and append through the C interface.
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

using ::testing::HasSubstr;

flashcore_status run(const flashcore_problem& problem, const flashcore_arguments& arguments) {
  flashcore_plan* plan = nullptr;
  flashcore_status status = flashcore_plan_create(&problem, nullptr, &plan);
  if (status == FLASHCORE_OK) {
    status = flashcore_plan_run(plan, &arguments, nullptr, 0, nullptr);
  }
  flashcore_plan_destroy(plan);
  return status;
}

TEST(CServing, PagesHoldTheKeysOfOnePiece) {
  flashcore_problem problem = small_problem();
  SmallData whole;
  ASSERT_EQ(run(problem, whole.arguments()), FLASHCORE_OK);

  // Keys 0 to 4 in pages of 2 rows: entry b has pages 5 - b, 1 + b and 3 - b of six.
  const std::array<int32_t, 6> table = {5, 1, 3, 4, 2, 0};
  problem.k = problem.v = tensor(FLASHCORE_F32, {6, 2, 2, 8});
  problem.page_table = tensor(FLASHCORE_I32, {2, 3});
  problem.seqlens_kv = tensor(FLASHCORE_I32, {2});
  problem.page_status = tensor(FLASHCORE_I32, {1});
  SmallData paged;
  const SmallData from;
  for (auto* const rows : {&paged.k, &paged.v}) rows->assign(6 * 2 * 2 * 8, NAN);
  for (size_t b = 0; b < 2; ++b) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t j = 0; j < 5; ++j) {
        const auto page = static_cast<size_t>(table[b * 3 + j / 2]);
        for (size_t d = 0; d < 8; ++d) {
          const size_t to = ((page * 2 + h) * 2 + j % 2) * 8 + d;
          const size_t at = ((b * 2 + h) * 5 + j) * 8 + d;
          paged.k[to] = from.k[at];
          paged.v[to] = from.v[at];
        }
      }
    }
  }
  const std::array<int32_t, 2> lengths = {5, 5};
  int32_t out_of_range = 0;
  flashcore_arguments arguments = paged.arguments();
  arguments.page_table = table.data();
  arguments.seqlens_kv = lengths.data();
  arguments.page_status = &out_of_range;
  ASSERT_EQ(run(problem, arguments), FLASHCORE_OK) << flashcore_last_error();
  EXPECT_EQ(paged.o, whole.o);
  EXPECT_EQ(paged.lse, whole.lse);
  EXPECT_EQ(out_of_range, 0);

  // Lists the same pages in the flat form.
  const std::array<int32_t, 3> starts = {0, 3, 6};
  const std::array<int32_t, 2> last = {1, 1};
  problem.kv_indptr = tensor(FLASHCORE_I32, {3});
  problem.kv_indices = tensor(FLASHCORE_I32, {6});
  problem.kv_last_page_len = problem.seqlens_kv;
  problem.page_table = problem.seqlens_kv = {};
  paged.o.assign(paged.o.size(), NAN);
  arguments.kv_indptr = starts.data();
  arguments.kv_indices = table.data();
  arguments.kv_last_page_len = last.data();
  arguments.page_table = arguments.seqlens_kv = nullptr;
  ASSERT_EQ(run(problem, arguments), FLASHCORE_OK) << flashcore_last_error();
  EXPECT_EQ(paged.o, whole.o);
}

TEST(CServing, AStructEndsBetweenTensors) {
  flashcore_problem problem = small_problem();
  for (const size_t size :
       {offsetof(flashcore_problem, page_table), offsetof(flashcore_problem, cache_leftpad),
        offsetof(flashcore_problem, tree_mask), sizeof problem}) {
    problem.struct_size = size;
    flashcore_plan* plan = nullptr;
    EXPECT_EQ(flashcore_plan_create(&problem, nullptr, &plan), FLASHCORE_OK) << size;
    flashcore_plan_destroy(plan);
  }
  problem.struct_size = offsetof(flashcore_problem, page_table) + 8;
  flashcore_plan* plan = nullptr;
  EXPECT_EQ(flashcore_plan_create(&problem, nullptr, &plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("struct_size"));
}

TEST(CServing, Merges) {
  flashcore_merge_problem problem;
  ASSERT_EQ(flashcore_merge_problem_init(&problem, sizeof problem), FLASHCORE_OK);
  problem.o_a = problem.o_b = problem.o = tensor(FLASHCORE_F32, {1, 1, 2, 3});
  problem.lse_a = problem.lse_b = problem.lse = tensor(FLASHCORE_F32, {1, 1, 2});
  const std::array<float, 6> a = {1, 2, 3, NAN, NAN, NAN}, b = {3, 4, 5, 7, 8, 9};
  const std::array<float, 2> lse_a = {0, -INFINITY}, lse_b = {0, 2};
  std::array<float, 6> o{};
  std::array<float, 2> lse{};
  flashcore_merge_arguments arguments;
  ASSERT_EQ(flashcore_merge_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
  arguments.o_a = a.data();
  arguments.o_b = b.data();
  arguments.lse_a = lse_a.data();
  arguments.lse_b = lse_b.data();
  arguments.o = o.data();
  arguments.lse = lse.data();
  ASSERT_EQ(flashcore_merge(&problem, &arguments, nullptr, nullptr), FLASHCORE_OK)
      << flashcore_last_error();
  EXPECT_EQ(o, (std::array<float, 6>{2, 3, 4, 7, 8, 9}));
  EXPECT_FLOAT_EQ(lse[0], std::log(2.0f));
  EXPECT_EQ(lse[1], 2);

  EXPECT_EQ(flashcore_merge(nullptr, &arguments, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_merge(&problem, nullptr, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
  flashcore_plan_options options = default_options();
  options.device_kind = FLASHCORE_CUDA;
  EXPECT_EQ(flashcore_merge(&problem, &arguments, &options, nullptr), FLASHCORE_UNSUPPORTED);
  problem.struct_size -= 8;
  EXPECT_EQ(flashcore_merge(&problem, &arguments, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
}

TEST(CServing, Appends) {
  flashcore_append_problem problem;
  ASSERT_EQ(flashcore_append_problem_init(&problem, sizeof problem), FLASHCORE_OK);
  EXPECT_EQ(problem.rope_scale, 1);
  problem.k_new = problem.v_new = tensor(FLASHCORE_F32, {1, 1, 1, 2});
  problem.k = problem.v = tensor(FLASHCORE_F32, {3, 1, 2, 2});
  problem.seqlens_kv = tensor(FLASHCORE_I32, {1});
  problem.page_table = tensor(FLASHCORE_I32, {1, 2});
  problem.rope_base = 10000;
  problem.interleaved = 1;
  const std::array<float, 2> k_new = {1, 0}, v_new = {5, 6};
  std::array<float, 12> k{}, v{};
  const std::array<int32_t, 1> length = {3};
  const std::array<int32_t, 2> table = {0, 2};
  flashcore_append_arguments arguments;
  ASSERT_EQ(flashcore_append_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
  arguments.k_new = k_new.data();
  arguments.v_new = v_new.data();
  arguments.k = k.data();
  arguments.v = v.data();
  arguments.seqlens_kv = length.data();
  arguments.page_table = table.data();
  ASSERT_EQ(flashcore_append(&problem, &arguments, nullptr, nullptr), FLASHCORE_OK)
      << flashcore_last_error();
  // Row 3 is row 1 of page 2; its key is rotated by an angle of 3.
  std::array<float, 12> want_v{};
  want_v[10] = 5;
  want_v[11] = 6;
  EXPECT_EQ(v, want_v);
  EXPECT_FLOAT_EQ(k[10], std::cos(3.0f));
  EXPECT_FLOAT_EQ(k[11], std::sin(3.0f));
  for (const int32_t transposed : {1, 2}) {
    problem.v_transposed = transposed;
    EXPECT_EQ(flashcore_append(&problem, &arguments, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
    EXPECT_THAT(flashcore_last_error(), HasSubstr("v_transposed: is "));
  }
  problem.v_transposed = 0;
  problem.interleaved = 2;
  EXPECT_EQ(flashcore_append(&problem, &arguments, nullptr, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("interleaved: is 2, wanted 0 or 1"));
}

TEST(CServing, TreeMasksAreMasksOfPairs) {
  flashcore_problem problem = small_problem();  // 3 queries, the last of 5 keys
  SmallData pairs, tree;
  std::vector<uint8_t> mask(3 * 5, 1);
  const std::array<int32_t, 3> bits = {1, 3, 5};  // queries 1 and 2 are children of query 0
  for (size_t i = 0; i < 3; ++i) {
    for (size_t t = 0; t < 3; ++t) mask[i * 5 + 2 + t] = (bits[i] >> t & 1) != 0 ? 1 : 0;
  }
  problem.mask = tensor(FLASHCORE_BOOLEAN, {1, 1, 3, 5});
  flashcore_arguments arguments = pairs.arguments();
  arguments.mask = mask.data();
  ASSERT_EQ(run(problem, arguments), FLASHCORE_OK) << flashcore_last_error();
  problem.mask = {};
  problem.tree_mask = tensor(FLASHCORE_I32, {1, 3, 1});
  arguments = tree.arguments();
  arguments.tree_mask = bits.data();
  ASSERT_EQ(run(problem, arguments), FLASHCORE_OK) << flashcore_last_error();
  EXPECT_EQ(tree.o, pairs.o);
  arguments.tree_mask = nullptr;
  EXPECT_EQ(run(problem, arguments), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("tree_mask: pointer is null"));
}

TEST(CServing, AppendsAndAttendsInOneCall) {
  // A key of 1 and a new key of 3, each with one element, in a cache of 4 rows.
  flashcore_append_problem rows;
  ASSERT_EQ(flashcore_append_problem_init(&rows, sizeof rows), FLASHCORE_OK);
  rows.k_new = rows.v_new = tensor(FLASHCORE_F32, {1, 1, 1, 1});
  rows.k = rows.v = tensor(FLASHCORE_F32, {1, 1, 4, 1});
  rows.seqlens_kv = tensor(FLASHCORE_I32, {1});
  flashcore_problem problem;
  ASSERT_EQ(flashcore_problem_init(&problem, sizeof problem), FLASHCORE_OK);
  problem.q = problem.o = rows.k_new;
  problem.k = problem.v = rows.k;
  problem.seqlens_kv = rows.seqlens_kv;
  const float q = 0, k_new = 3;
  float o = NAN;
  std::array<float, 4> k = {1, NAN, NAN, NAN}, v = k;
  const std::array<int32_t, 1> before = {1};
  std::array<int32_t, 1> after = {5};
  flashcore_append_arguments data;
  ASSERT_EQ(flashcore_append_arguments_init(&data, sizeof data), FLASHCORE_OK);
  data.k_new = data.v_new = &k_new;
  data.k = k.data();
  data.v = v.data();
  data.seqlens_kv = before.data();
  flashcore_arguments attention;
  ASSERT_EQ(flashcore_arguments_init(&attention, sizeof attention), FLASHCORE_OK);
  attention.q = &q;
  attention.k = k.data();
  attention.v = v.data();
  attention.o = &o;
  attention.seqlens_kv = after.data();
  const auto step = [&](const flashcore_plan* plan) {
    return flashcore_append_and_attend(&rows, &data, plan, &attention, nullptr, nullptr, 0,
                                       nullptr);
  };
  EXPECT_EQ(step(nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), HasSubstr("is not a plan"));
  flashcore_plan* plan = nullptr;
  ASSERT_EQ(flashcore_plan_create(&problem, nullptr, &plan), FLASHCORE_OK);
  EXPECT_EQ(step(plan), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_STREQ(flashcore_last_error(), "seqlens_kv: entry 0 is 5, wanted 0 to 4");
  EXPECT_TRUE(std::isnan(k[1]));
  after[0] = 2;
  EXPECT_EQ(step(plan), FLASHCORE_OK) << flashcore_last_error();
  EXPECT_EQ(k[1], 3);
  EXPECT_FLOAT_EQ(o, 2);  // equal scores: the mean of 1 and 3
  flashcore_plan_destroy(plan);
}

}  // namespace
}  // namespace flashcore::testing
