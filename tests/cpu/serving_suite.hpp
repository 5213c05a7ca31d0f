// Merge and append on a device: what they do by docs/semantics.md, wherever they run. A place has
//
//   Status run(MergeCase&), run(AppendCase&)       results are in the case's tensors afterwards
//   kMerges, kAppends, kColumns                    seeds and numbers of random cases
//   kWrongPages                                    more of the appends than these read a wrong page
//   static std::string missing()                   why there is no such device, or ""
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "tests/cpu/serving_cases.hpp"

namespace flashcore {

using testing::AppendCase;
using testing::MergeCase;

struct Draws {
  uint64_t seed;
  int count;
};

template <class Place>
class Serving : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Place::missing(); !why.empty()) GTEST_SKIP() << why;
  }
  template <class Case>
  static void run(Case& one, const std::string& where = "") {
    const Status status = Place::run(one);
    ASSERT_TRUE(status.ok()) << where << ' ' << status.message();
  }
  // Appends one row of this width after another, which is 0 in the cache.
  static AppendCase after_zeros(DType rows, DType k, DType v, int64_t width) {
    AppendCase one;
    one.what.k_new = one.what.v_new = TensorDesc::contiguous(rows, {1, 1, 1, width});
    one.what.k = TensorDesc::contiguous(k, {1, 1, 2, width});
    one.what.v = TensorDesc::contiguous(v, {1, 1, 2, width});
    one.what.seqlens_kv = testing::i32(1);
    one.add_described();
    for (const char* const name : {"k", "v"}) one.at(name).fill([] { return 0.0; });
    one.at("seqlens_kv").set(0, 1);
    return one;
  }
};
TYPED_TEST_SUITE_P(Serving);

TYPED_TEST_P(Serving, MergeIsAttentionOverBoth) {
  bench::Random random(TypeParam::kMerges.seed);
  for (int n = 0; n < TypeParam::kMerges.count; ++n) {
    MergeCase one = testing::random_merge(random);
    ASSERT_NO_FATAL_FAILURE(TestFixture::run(one, std::to_string(n)));
    testing::expect_merged(one, fmt::format("case {}", n));
  }
}

// Aligned rows are read 16 bytes at a time: as wide as a chunk, some, and more than a warp.
TYPED_TEST_P(Serving, MergesAlignedRows) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  bench::Random random(23);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType out : {dtype, DType::f32}) {
      for (const int64_t width : {8, 64, 128, 576}) {
        MergeCase one;
        const int64_t rows = 75;
        one.what.o_a = one.what.o_b = TensorDesc::contiguous(dtype, {1, 2, rows, width});
        one.what.o = TensorDesc::contiguous(out, {1, 2, rows, width});
        one.what.lse_a = one.what.lse_b = TensorDesc::contiguous(DType::f32, {1, 2, rows});
        one.what.lse = one.what.lse_a;
        one.add_described();
        for (const char* const name : {"o_a", "o_b", "lse_a", "lse_b"}) {
          one.at(name).fill([&] { return random.normal(); });
        }
        for (int64_t d = 0; d < width; ++d) {  // rows that count for nothing
          one.at("o_a").set(3 * width + d, std::numeric_limits<double>::quiet_NaN());
          one.at("o_b").set(4 * width + d, kInf);
        }
        one.at("lse_a").set(3, -kInf), one.at("lse_b").set(4, -kInf);
        one.at("lse_a").set(5, -kInf), one.at("lse_b").set(5, -kInf);
        ASSERT_NO_FATAL_FAILURE(TestFixture::run(one));
        testing::expect_merged(
            one, fmt::format("{} to {}, {} wide", to_string(dtype), to_string(out), width));
      }
    }
  }
}

TYPED_TEST_P(Serving, AppendWritesTheNewRowsAndNothingElse) {
  bench::Random random(TypeParam::kAppends.seed);
  int wrong_pages = 0;
  for (int n = 0; n < TypeParam::kAppends.count;
       ++n) {  // what is drawn first is up to the compiler
    testing::Sizes s{};
    AppendCase one = testing::random_append(random, s);
    AppendCase before = one;
    ASSERT_NO_FATAL_FAILURE(TestFixture::run(one, std::to_string(n)));
    testing::expect_appended(before, one, s, fmt::format("case {}", n));
    if (one.has("page_status") && one.at("page_status").get(0) == 1) ++wrong_pages;
  }
  EXPECT_GT(wrong_pages, TypeParam::kWrongPages);
}

// Equals the same append to V in rows, transposed.
TYPED_TEST_P(Serving, AppendWritesColumnsOfATransposedV) {
  bench::Random random(TypeParam::kColumns.seed);
  int cases = 0;
  while (cases < TypeParam::kColumns.count) {
    testing::Sizes s{};
    AppendCase rows = testing::random_append(random, s);
    if (s.paged || !testing::is_fp8_cache(rows)) continue;
    ++cases;
    AppendCase columns = testing::with_transposed_v(rows);
    ASSERT_NO_FATAL_FAILURE(TestFixture::run(columns, std::to_string(cases)));
    ASSERT_NO_FATAL_FAILURE(TestFixture::run(rows));
    AppendCase want = testing::with_transposed_v(rows);
    for (const char* const name : {"k", "v", "q_out"}) {
      if (!want.has(name)) continue;
      EXPECT_TRUE(columns.at(name).same_elements(want.at(name))) << cases << ' ' << name;
      EXPECT_TRUE(columns.at(name).canaries_intact()) << cases << ' ' << name;
    }
  }
}

TYPED_TEST_P(Serving, SaturatesInFp8) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const auto& [dtype, largest] : {std::pair{DType::f8e4m3, 448.0}, {DType::f8e5m2, 57344.0}}) {
    AppendCase one = TestFixture::after_zeros(DType::f32, dtype, dtype, 6);
    for (const char* const name : {"k_new", "v_new"}) {
      const double rows[] = {1e6, -1e6, kInf, -kInf, 1, std::numeric_limits<double>::quiet_NaN()};
      one.at(name).fill([&, n = 0]() mutable { return rows[n++]; });
    }
    ASSERT_NO_FATAL_FAILURE(TestFixture::run(one));
    for (const char* const name : {"k", "v"}) {
      const double want[] = {largest, -largest, largest, -largest, 1};
      for (int64_t d = 0; d < 5; ++d) EXPECT_EQ(one.at(name).get(6 + d), want[d]) << name << d;
      EXPECT_TRUE(std::isnan(one.at(name).get(11)));
    }
  }
}

// Wide rows are rounded to each cache's type: e4m3 holds 1.125, and the nearest of e5m2 is 1.25.
TYPED_TEST_P(Serving, AppendsToCachesOfTwoTypesOfFp8) {
  for (const int64_t width : {8, 5}) {
    AppendCase one = TestFixture::after_zeros(DType::bf16, DType::f8e4m3, DType::f8e5m2, width);
    for (const char* const name : {"k_new", "v_new"}) one.at(name).fill([] { return 1.1328125; });
    ASSERT_NO_FATAL_FAILURE(TestFixture::run(one));
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_EQ(one.at("k").get(width + i), 1.125);
      EXPECT_EQ(one.at("v").get(width + i), 1.25);
      EXPECT_EQ(one.at("k").get(i), 0);
      EXPECT_EQ(one.at("v").get(i), 0);
    }
  }
}

// The quotient of a zero and a scale has the zero's sign.
TYPED_TEST_P(Serving, KeepsTheSignOfZero) {
  AppendCase one = TestFixture::after_zeros(DType::bf16, DType::f8e4m3, DType::f8e4m3, 8);
  one.what.k_scale = one.what.v_scale = TensorDesc::contiguous(DType::f32, {1, 1, 1});
  one.add_described();
  for (const char* const name : {"k_new", "v_new"}) one.at(name).fill([] { return -0.0; });
  for (const char* const name : {"k", "v"}) one.at(name).fill([] { return 1.0; });
  for (const char* const name : {"k_scale", "v_scale"}) one.at(name).set(0, 0.01);
  ASSERT_NO_FATAL_FAILURE(TestFixture::run(one));
  for (const char* const name : {"k", "v"}) {
    for (int64_t i = 8; i < 16; ++i) {
      EXPECT_EQ(one.at(name).get(i), 0);
      EXPECT_TRUE(std::signbit(one.at(name).get(i))) << name << ' ' << i;
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(Serving, MergeIsAttentionOverBoth, MergesAlignedRows,
                            AppendWritesTheNewRowsAndNothingElse, AppendWritesColumnsOfATransposedV,
                            SaturatesInFp8, AppendsToCachesOfTwoTypesOfFp8, KeepsTheSignOfZero);

}  // namespace flashcore
