// Merge and append on the CPU.
#include "flashcore/serving.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/random_layout.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "problem/dtype.hpp"
#include "tests/cpu/run_on_host.hpp"
#include "tests/cpu/serving_suite.hpp"

namespace flashcore {
namespace {

using bench::HostTensor;
using bench::Random;
using testing::i32;
using testing::random_append;
using testing::Sizes;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double rounded(DType dtype, double value) {
  double stored = 0;
  store_element(dtype, &stored, 0, value);
  return load_element(dtype, &stored, 0);
}

PlanOptions on_threads(int threads) {
  PlanOptions options;
  options.threads = threads;
  return options;
}

PlanOptions on_a_gpu_that_is_not_there() {
  PlanOptions options;
  options.device = {DeviceKind::cuda, 1000};
  return options;
}

struct OnCpu {
  static constexpr Draws kMerges{7, 200}, kAppends{21, 600}, kColumns{77, 40};
  static constexpr int kWrongPages = 3;
  static std::string missing() { return {}; }
  static Status run(MergeCase& one) { return merge(one.what, one.arguments(), on_threads(2)); }
  static Status run(AppendCase& one) { return append(one.what, one.arguments(), on_threads(2)); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, Serving, OnCpu);

// ---------------------------------------------------------------------------------------------
// Merge

TEST(Merge, RoundsToNearestEven) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    MergeCase one;
    one.what.o_a = one.what.o_b = one.what.o = TensorDesc::contiguous(dtype, {1, 1, 1, 64});
    one.what.lse_a = one.what.lse_b = TensorDesc::contiguous(DType::f32, {1, 1, 1});
    one.add_described();
    for (const char* const name : {"lse_a", "lse_b"}) one.at(name).set(0, 0);  // weights 1/2 each
    Random random(11);
    for (const char* const name : {"o_a", "o_b"}) {
      one.at(name).fill([&] { return random.normal() * std::exp2(random.integer(-20, 10)); });
    }
    ASSERT_TRUE(merge(one.what, one.arguments()).ok());
    for (int64_t d = 0; d < 64; ++d) {
      const auto sum = static_cast<float>(0.5 * one.at("o_a").get(d) + 0.5 * one.at("o_b").get(d));
      EXPECT_EQ(one.at("o").get(d), rounded(dtype, static_cast<double>(sum))) << d;
    }
  }
}

// Merging two halves of a problem's keys gives the whole.
TEST(Merge, MakesTwoHalvesTheWhole) {
  Problem whole;
  whole.q = whole.o = TensorDesc::contiguous(DType::f32, {2, 4, 3, 32});
  whole.k = whole.v = TensorDesc::contiguous(DType::f32, {2, 2, 100, 32});
  whole.lse = TensorDesc::contiguous(DType::f32, {2, 4, 3});
  bench::HostProblem host = bench::make_host_problem(whole, 5);
  ASSERT_TRUE(testing::run_on_host(host, {}).ok());
  const int64_t cut = 37;
  MergeCase one;
  one.what.o_a = one.what.o_b = one.what.o = whole.o;
  one.what.lse_a = one.what.lse_b = *whole.lse;
  one.what.lse = whole.lse;
  one.add_described();
  for (const auto& [part, first, count] :
       {std::tuple{std::string("a"), int64_t{0}, cut}, {std::string("b"), cut, 100 - cut}}) {
    Problem half = whole;
    half.k.shape[2] = half.v.shape[2] = count;  // same strides
    Arguments args = host.arguments();
    args.k = static_cast<const float*>(args.k) + first * 32;
    args.v = static_cast<const float*>(args.v) + first * 32;
    args.o = one.at("o_" + part).data();
    args.lse = one.at("lse_" + part).data();
    const Result<Plan> plan = make_plan(half);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(plan->run(args).ok());
  }
  // In place: o is o_a, and lse is lse_a.
  ASSERT_TRUE(merge(one.what, one.arguments()).ok());
  for (int64_t i = 0; i < host.at("o").elements(); ++i) {
    EXPECT_NEAR(one.at("o").get(i), host.at("o").get(i), 2e-6);
  }
  MergeArguments in_place = one.arguments();
  in_place.o = one.at("o_a").data();
  in_place.lse = static_cast<float*>(one.at("lse_a").data());
  ASSERT_TRUE(merge(one.what, in_place).ok());
  EXPECT_TRUE(one.at("o_a").same_elements(one.at("o")));
  EXPECT_TRUE(one.at("lse_a").same_elements(one.at("lse")));
}

TEST(Merge, RefusesWhatMakesNoSense) {
  MergeCase one;
  one.what.o_a = one.what.o_b = one.what.o = TensorDesc::contiguous(DType::bf16, {2, 2, 3, 8});
  one.what.lse_a = one.what.lse_b = TensorDesc::contiguous(DType::f32, {2, 2, 3});
  one.what.lse = one.what.lse_a;
  one.add_described();
  for (const char* const name : {"o_a", "o_b", "o"}) one.at(name).fill([] { return 1.0; });
  for (const char* const name : {"lse_a", "lse_b", "lse"}) one.at(name).fill([] { return 0.0; });
  ASSERT_TRUE(merge(one.what, one.arguments()).ok());
  const auto refused = [&](const Merge& what, const MergeArguments& args, const char* sentence) {
    const Status status = merge(what, args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
  };
  Merge what = one.what;
  what.o_b.shape[3] += 1;
  refused(what, one.arguments(), "o_b: shape is");
  what = one.what;
  what.lse_b.dtype = DType::f64;
  refused(what, one.arguments(), "lse_b: dtype is f64, wanted f32");
  what = one.what;
  what.o_a.dtype = DType::f8e4m3;
  refused(what, one.arguments(), "o_a: dtype is f8e4m3, wanted f32, f16 or bf16");
  MergeArguments args = one.arguments();
  args.o_b = nullptr;
  refused(one.what, args, "o_b: pointer is null");
  args = one.arguments();
  args.o = static_cast<std::byte*>(one.at("o_a").data()) + size_of(one.what.o.dtype);
  refused(one.what, args, "o: pointer");
  // Eight columns of 16, and the same shifted by one: neither is dense, and they share seven.
  std::vector<uint16_t> wide(2 * 2 * 3 * 16);
  what = one.what;
  what.o_a = what.o = TensorDesc::strided(DType::bf16, {2, 2, 3, 8}, {96, 48, 16, 1});
  args = one.arguments();
  args.o_a = wide.data();
  args.o = wide.data() + 1;
  refused(what, args, "o: pointer");
  args.o = wide.data() + 8;
  EXPECT_TRUE(merge(what, args).ok());
  const Status gpu = merge(one.what, one.arguments(), on_a_gpu_that_is_not_there());
  EXPECT_FALSE(gpu.ok());
  EXPECT_TRUE(gpu.message().starts_with("device: is cuda:1000, ")) << gpu.message();
}

// ---------------------------------------------------------------------------------------------
// Append

// fp8 rows are copied unconverted.
TEST(Append, MovesColumnsOfFp8) {
  AppendCase one;
  one.what.k_new = one.what.v_new = TensorDesc::contiguous(DType::f8e5m2, {1, 2, 3, 8});
  one.what.k = TensorDesc::contiguous(DType::f8e5m2, {1, 2, 40, 8});
  one.what.v = TensorDesc::contiguous(DType::f8e5m2, {1, 2, 8, 128});
  one.what.v_transposed = true;
  one.what.seqlens_kv = i32(1);
  Random random(5);
  for (const auto& [name, desc] : {std::pair{"k_new", one.what.k_new},
                                   {"v_new", one.what.v_new},
                                   {"k", one.what.k},
                                   {"v", one.what.v}}) {
    one.add(name, desc).fill([&] { return random.normal(); });
  }
  one.add("seqlens_kv", one.what.seqlens_kv).set(0, 8);
  const AppendCase before = one;
  ASSERT_TRUE(append(one.what, one.arguments()).ok());
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t column = 0; column < 128; ++column) {
      // Rows 8, 9 and 10 are these columns.
      const int64_t n = column == 2 ? 0 : column == 3 ? 1 : column == 6 ? 2 : -1;
      const double want = n < 0 ? before.tensors.at("v").get(row * 128 + column)
                                : before.tensors.at("v_new").get((row / 8 * 3 + n) * 8 + row % 8);
      EXPECT_EQ(one.at("v").get(row * 128 + column), want) << row << ' ' << column;
    }
  }
  one.what.v.dtype = one.what.v_new.dtype = one.what.k.dtype = one.what.k_new.dtype = DType::f16;
  EXPECT_TRUE(append(one.what, one.arguments()).message().starts_with("v_transposed: is true"));
}

// A rotation keeps lengths, and products of rotated rows depend only on distances.
TEST(Append, RotationKeepsProductsOfEqualDistances) {
  for (const bool interleaved : {false, true}) {
    AppendCase one;
    Append& what = one.what;
    what.k_new = what.v_new = TensorDesc::contiguous(DType::f32, {1, 1, 8, 16});
    what.k = what.v = TensorDesc::contiguous(DType::f32, {1, 1, 8, 16});
    what.seqlens_kv = i32(1);
    what.q = what.q_out = what.k_new;
    what.rope_base = 100;
    what.interleaved = interleaved;
    one.add_described();
    for (auto& [name, tensor] : one.tensors) tensor.fill([] { return 0.0; });
    Random random(3);
    for (int64_t d = 0; d < 16; ++d) {  // the same query and key at each position
      const double q = random.normal(), k = random.normal();
      for (int64_t i = 0; i < 8; ++i)
        one.at("q").set(i * 16 + d, q), one.at("k_new").set(i * 16 + d, k);
    }
    ASSERT_TRUE(append(what, one.arguments()).ok());
    const auto product = [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t d = 0; d < 16; ++d) {
        sum += one.at("q_out").get(i * 16 + d) * one.at("k").get(j * 16 + d);
      }
      return sum;
    };
    for (int64_t distance = 0; distance < 5; ++distance) {
      for (int64_t j = 1; j + distance < 8; ++j) {
        EXPECT_NEAR(product(j + distance, j), product(distance, 0), 1e-4);
      }
    }
    EXPECT_GT(std::abs(product(5, 0) - product(0, 0)), 1e-2);
  }
}

// Wide rows are rounded to each cache's type; fp8 rows are copied, and need caches of their own type.
TEST(Append, ACacheOfKeysMayHaveAnotherTypeOfFp8ThanOneOfValues) {
  AppendCase one;
  Append& what = one.what;
  what.k_new = what.v_new = TensorDesc::contiguous(DType::f32, {1, 1, 1, 4});
  what.k = TensorDesc::contiguous(DType::f8e4m3, {1, 1, 2, 4});
  what.v = TensorDesc::contiguous(DType::f8e5m2, {1, 1, 2, 4});
  what.seqlens_kv = i32(1);
  for (const char* const name : {"k_new", "v_new"}) {
    HostTensor& rows = one.add(name, what.k_new);
    rows.set(0, 1e6), rows.set(1, -1e6), rows.set(2, 1.125), rows.set(3, 0x1p-16);
  }
  one.add("k", what.k).fill([] { return 0.0; });
  one.add("v", what.v).fill([] { return 0.0; });
  one.add("seqlens_kv", what.seqlens_kv).set(0, 1);
  const Status status = append(what, one.arguments());
  ASSERT_TRUE(status.ok()) << status.message();
  const double wanted[2][4] = {{448, -448, 1.125, 0}, {57344, -57344, 1, 0x1p-16}};
  for (int64_t d = 0; d < 4; ++d) {
    EXPECT_EQ(one.at("k").get(4 + d), wanted[0][d]);
    EXPECT_EQ(one.at("v").get(4 + d), wanted[1][d]);
  }
  what.k_new.dtype = what.v_new.dtype = DType::f8e4m3;
  EXPECT_EQ(append(what, one.arguments()).message(), "v: dtype is f8e5m2, wanted v_new's f8e4m3");
  what.k_new.dtype = what.v_new.dtype = DType::f8e5m2;
  EXPECT_EQ(append(what, one.arguments()).message(), "k: dtype is f8e4m3, wanted k_new's f8e5m2");
}

TEST(Append, RefusesWhatMakesNoSense) {
  Random random(9);
  Sizes s{};
  AppendCase one = random_append(random, s);
  while (!s.paged || s.flat || s.packed || one.has("page_status") || one.has("cache_leftpad") ||
         !one.what.rope_cos || one.has("seqlens_new")) {
    one = random_append(random, s);
  }
  ASSERT_TRUE(append(one.what, one.arguments()).ok());
  const AppendCase before = one;
  const auto refused = [&](const Append& what, const AppendArguments& args,
                           const std::string& sentence) {
    const Status status = append(what, args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
    for (const char* const name : {"k", "v"}) {
      EXPECT_EQ(std::memcmp(before.tensors.at(name).memory().data(), one.at(name).memory().data(),
                            one.at(name).memory().size()),
                0)
          << sentence;
    }
  };
  const int64_t room = s.columns * s.page;
  one.at("seqlens_kv").set(0, static_cast<double>(room - s.rows + 1));
  refused(one.what, one.arguments(),
          fmt::format("k: sequence 0 has {} rows in use and {} new ones, wanted at most {} in all",
                      room - s.rows + 1, s.rows, room));
  one.at("seqlens_kv").set(0, -1);
  refused(one.what, one.arguments(),
          fmt::format("seqlens_kv: entry 0 is -1, wanted 0 to {}", room));
  one.at("seqlens_kv").set(0, 0);
  one.at("page_table").set(0, -1);
  refused(one.what, one.arguments(),
          fmt::format("page_table: page 0 of sequence 0 is -1, wanted 0 to {}", s.pages - 1));
  one.at("page_table").set(0, 0);
  Append what = one.what;
  what.rope_sin.reset();
  refused(what, one.arguments(), "rope_sin: is missing, wanted both rope_cos and rope_sin");
  what = one.what;
  what.rope_base = 10;
  refused(what, one.arguments(), "rope_base: is 10, wanted 0 with rope_cos and rope_sin");
  what = one.what;
  what.k_new.dtype = DType::i32;
  refused(what, one.arguments(), "dtype");
  what = one.what;
  what.cu_seqlens_new = i32(s.batch + 1);
  refused(what, one.arguments(), "k_new: rank is 4, wanted 3");
  AppendArguments args = one.arguments();
  args.k_new = args.k;
  refused(one.what, args, "k: pointer");
  EXPECT_FALSE(append(one.what, one.arguments(), on_a_gpu_that_is_not_there()).ok());
}

TEST(Append, OutputsHaveMemoryOfTheirOwn) {
  Random random(10);
  Sizes s{};
  AppendCase one = random_append(random, s);
  while (!one.has("q") || !one.what.rope_cos || !s.paged || s.flat ||
         one.what.k.dtype != one.what.v.dtype) {
    one = random_append(random, s);
  }
  ASSERT_TRUE(append(one.what, one.arguments()).ok());
  // Larger than any argument, so that nothing else follows the shared address.
  std::vector<float> shared(size_t{1} << 20);
  const auto refused = [&](const char* output, const char* other, const auto& change) {
    AppendArguments args = one.arguments();
    change(args);
    const Status status = append(one.what, args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_TRUE(status.message().starts_with(fmt::format("{}: pointer", output)) &&
                status.message().find(fmt::format("overlaps the memory of {},", other)) !=
                    std::string::npos)
        << output << ", " << other << ": " << status.message();
  };
  using Args = AppendArguments&;
  refused("k", "v", [&](Args a) { a.k = a.v = shared.data(); });
  // Columns of one buffer, as in MLA, with one overlapping column.
  Append woven = one.what;
  const int64_t width_k = woven.k.shape[3], width_v = woven.v.shape[3], row = width_k + width_v;
  for (TensorDesc* const cache : {&woven.k, &woven.v}) {
    cache->stride = {row * cache->shape[1] * cache->shape[2], row * cache->shape[2], row, 1};
  }
  const auto size = static_cast<int64_t>(size_of(woven.k.dtype));
  ASSERT_LE(woven.k.shape[0] * woven.k.stride[0] * size,
            static_cast<int64_t>(shared.size() * sizeof(float)));
  auto* const bytes = reinterpret_cast<std::byte*>(shared.data());
  AppendArguments columns = one.arguments();
  columns.k = bytes;
  columns.v = bytes + width_k * size;
  EXPECT_TRUE(append(woven, columns).ok()) << append(woven, columns).message();
  columns.v = bytes + (width_k - 1) * size;
  EXPECT_NE(append(woven, columns).message().find("k: pointer"), std::string::npos);
  refused("k", "q_out", [&](Args a) { a.k = a.q_out = shared.data(); });
  refused("q_out", "k_new", [&](Args a) { a.k_new = a.q_out = shared.data(); });
  refused("q_out", "rope_sin",
          [&](Args a) { a.rope_sin = shared.data(), a.q_out = shared.data(); });
  refused("v", "v_new", [&](Args a) { a.v_new = a.v = shared.data(); });
  refused("k", "rope_cos", [&](Args a) { a.rope_cos = shared.data(), a.k = shared.data(); });
  refused("v", "page_table", [&](Args a) {
    a.v = shared.data();
    a.page_table = reinterpret_cast<const int32_t*>(shared.data());
  });
}

}  // namespace
}  // namespace flashcore
