// V stored transposed: the operator that makes it, and attention over it, compared with V in rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/quantize.hpp"
#include "problem/transposed.hpp"
#include "tests/cpu/each_target.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::HostTensor;
using bench::Random;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// From docs/semantics.md.
constexpr int64_t kKeysOfColumns[16] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};

TEST(TransposedV, ColumnsAreThoseOfThePage) {
  for (int64_t column = 0; column < 64; ++column) {
    EXPECT_EQ(column_of_key(column / 16 * 16 + kKeysOfColumns[column % 16]), column);
  }
  EXPECT_EQ(columns_of_keys(0), 0);
  EXPECT_EQ(columns_of_keys(1), 128);
  EXPECT_EQ(columns_of_keys(128), 128);
  EXPECT_EQ(columns_of_keys(129), 256);
}

const uint8_t* bytes_of(const HostTensor& tensor) {
  return static_cast<const uint8_t*>(tensor.data());
}

TEST(TransposeV, MovesEveryByte) {
  const struct {
    int64_t batch, heads, rows, width, columns;
  } cases[] = {{2, 3, 100, 64, 128}, {1, 1, 128, 20, 256}, {1, 2, 300, 1, 384}, {2, 1, 1, 130, 128},
               {1, 1, 0, 8, 128},    {0, 2, 5, 8, 128},    {1, 1, 0, 8, 0}};
  for (const auto& c : cases) {
    const auto v = TensorDesc::strided(
        DType::f8e5m2, {c.batch, c.heads, c.rows, c.width},
        {c.rows * (c.heads * c.width + 3), c.width, c.heads * c.width + 3, 1});  // bshd with gaps
    const auto out = TensorDesc::strided(
        DType::f8e5m2, {c.batch, c.heads, c.width, c.columns},
        {c.heads * c.width * (c.columns + 16), c.width * (c.columns + 16), c.columns + 16, 1});
    HostTensor from(v), to(out);
    Random random(7);
    auto* const data = static_cast<uint8_t*>(from.data());
    if (from.elements() > 0) {
      for (int64_t b = 0; b < c.batch * c.rows * (c.heads * c.width + 3) - 3; ++b) {
        data[b] = static_cast<uint8_t>(random.bits());  // also NaN
      }
    }
    for (const int threads : {1, 3}) {
      PlanOptions options;
      options.threads = threads;
      to.poison();
      const Status status = transpose_v(v, from.data(), out, to.data(), options);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(to.canaries_intact());
      for (int64_t head = 0; head < c.batch * c.heads; ++head) {
        const uint8_t* const in =
            data + head / c.heads * v.stride[0] + head % c.heads * v.stride[1];
        const uint8_t* const got =
            bytes_of(to) + head / c.heads * out.stride[0] + head % c.heads * out.stride[1];
        for (int64_t d = 0; d < c.width; ++d) {
          for (int64_t column = 0; column < c.columns; ++column) {
            const int64_t key = column / 16 * 16 + kKeysOfColumns[column % 16];
            const uint8_t want = key < c.rows ? in[key * v.stride[2] + d] : uint8_t{0};
            ASSERT_EQ(got[d * out.stride[2] + column], want) << head << " " << d << " " << column;
          }
        }
      }
    }
  }
}

TEST(TransposeV, RefusesWithOneSentence) {
  std::vector<uint8_t> from(4096), to(65536);
  const auto refused = [&](const TensorDesc& v, const TensorDesc& out, const void* data,
                           void* written) {
    const Status status = transpose_v(v, data, out, written);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    return status.message();
  };
  const auto v = TensorDesc::contiguous(DType::f8e4m3, {1, 2, 130, 8});
  const auto out = TensorDesc::contiguous(DType::f8e4m3, {1, 2, 8, 256});
  ASSERT_TRUE(transpose_v(v, from.data(), out, to.data()).ok());
  TensorDesc other = v;
  other.dtype = DType::f16;
  EXPECT_THAT(refused(other, out, from.data(), to.data()),
              StartsWith("v: dtype is f16, wanted f8e4m3 or f8e5m2"));
  other = out;
  other.dtype = DType::f8e5m2;
  EXPECT_THAT(refused(v, other, from.data(), to.data()), StartsWith("v_out: dtype is f8e5m2"));
  for (const int64_t columns : {128, 200}) {
    EXPECT_THAT(refused(v, TensorDesc::contiguous(DType::f8e4m3, {1, 2, 8, columns}), from.data(),
                        to.data()),
                HasSubstr("wanted a multiple of 128, at least v's 130 rows"));
  }
  EXPECT_THAT(
      refused(v, TensorDesc::contiguous(DType::f8e4m3, {1, 2, 9, 256}), from.data(), to.data()),
      StartsWith("v_out: shape is [1, 2, 9, 256], wanted [B, H, D, columns]"));
  other = out;
  other.stride[2] = 0;
  EXPECT_THAT(refused(v, other, from.data(), to.data()), HasSubstr("overlap"));
  EXPECT_THAT(refused(v, out, nullptr, to.data()), StartsWith("v: pointer is null"));
  EXPECT_THAT(refused(v, out, from.data(), nullptr), StartsWith("v_out: pointer is null"));
  EXPECT_THAT(refused(v, out, from.data(), from.data()), HasSubstr("overlaps the memory of v"));
  // Rows of 8 and of 256 bytes at a stride of 512: one byte too close.
  std::vector<uint8_t> rows(size_t{512} * 300);
  other = out;
  other.stride = {512 * 16, 512 * 8, 512, 1};
  TensorDesc narrow = v;
  narrow.stride = {512 * 130, 512 * 16, 512, 1};
  EXPECT_TRUE(transpose_v(narrow, rows.data(), other, rows.data() + 8).ok());
  EXPECT_THAT(refused(narrow, other, rows.data(), rows.data() + 7),
              HasSubstr("overlaps the memory of v"));
}

// The contents of columns that belong to no key in use.
enum class Hidden { zeros, nan };

// Stores the problem's V transposed.
HostProblem with_transposed_v(const HostProblem& rows, Hidden hidden) {
  Problem problem = rows.problem;
  const auto [batch, heads, keys, width] = problem.v.shape;
  const int64_t columns = columns_of_keys(keys) + kColumnBlock;
  problem.v_transposed = true;
  problem.v = TensorDesc::contiguous(problem.v.dtype, {batch, heads, width, columns});
  HostProblem out = bench::allocate(problem);
  for (const auto& [name, tensor] : rows.tensors) {
    if (name != "v") out.tensors.find(name)->second = tensor;
  }
  out.dropout_seed = rows.dropout_seed;
  out.dropout_offset = rows.dropout_offset;
  HostTensor& v = out.at("v");
  const Status status = transpose_v(rows.problem.v, rows.at("v").data(), problem.v, v.data());
  EXPECT_TRUE(status.ok()) << status.message();
  if (hidden == Hidden::zeros) return out;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t used = rows.has("seqlens_kv")
                             ? std::min(keys, static_cast<int64_t>(rows.at("seqlens_kv").get(b)))
                             : keys;
    for (int64_t row = b * heads * width; row < (b + 1) * heads * width; ++row) {
      for (int64_t key = used; key < columns; ++key) {
        v.set(row * columns + column_of_key(key), std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  return out;
}

void expect_same_outputs(const HostProblem& got, const HostProblem& want) {
  for (const char* const name : {"o", "lse", "amax_o", "amax_s"}) {
    if (!want.has(name)) continue;
    const HostTensor &a = got.at(name), &b = want.at(name);
    for (int64_t i = 0; i < b.elements(); ++i) {
      const double x = a.get(i), y = b.get(i);
      ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y)))
          << name << " " << i << ": " << x << " is not " << y;
    }
  }
}

TEST(TransposedV, HasTheBitsOfVInRows) {
  EachTarget targets;
  bench::RandomSpace space;
  space.more_outputs = space.max_logit = space.mixes_fp8 = true;
  uint64_t computed = 0;
  const uint64_t wanted = problem_count(60);
  for (uint64_t seed = 0; computed < wanted; ++seed) {
    const std::string target = targets.use(seed);
    if (seed % 8 == 7) space.largest_seqlen = 700;
    const bench::RandomDraw draw(seed, space);
    const Problem& drawn = draw.problem();
    space.largest_seqlen = 160;
    if (size_of(drawn.v.dtype) != 1 || drawn.v.rank != 4) continue;
    ++computed;
    HostProblem rows = draw.fill();
    HostProblem columns = with_transposed_v(rows, seed % 2 == 0 ? Hidden::nan : Hidden::zeros);
    for (const char* const kernel : {"reference", "cpu_simd"}) {
      SCOPED_TRACE(std::string(kernel) + " " + target + ": " + bench::describe(drawn));
      const PlanOptions options = testing::on_kernel(kernel);
      bench::poison_outputs(rows);
      bench::poison_outputs(columns);
      const Status of_rows = testing::run_on_host(rows, options);
      ASSERT_TRUE(of_rows.ok()) << of_rows.message();
      const Status of_columns = testing::run_on_host(columns, options);
      ASSERT_TRUE(of_columns.ok()) << of_columns.message();
      ASSERT_NO_FATAL_FAILURE(expect_same_outputs(columns, rows));
    }
  }
}

// fp8 values under a wider Q, as in a cache.
TEST(TransposedV, IsAlsoThatOfACache) {
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(DType::bf16, {2, 4, 3, 40});
  problem.k = problem.v = TensorDesc::contiguous(DType::f8e4m3, {2, 2, 200, 40});
  problem.k_scale = problem.v_scale = TensorDesc::contiguous(DType::f32, {2, 2, 25});
  problem.kv_scale_block = 8;
  problem.seqlens_kv = problem.cache_leftpad = TensorDesc::contiguous(DType::i32, {2});
  problem.causal = true;
  HostProblem rows = bench::make_host_problem(problem, 3);
  rows.at("seqlens_kv").set(0, 77);
  rows.at("cache_leftpad").set(0, 5);
  rows.at("cache_leftpad").set(1, 0);
  HostProblem columns = with_transposed_v(rows, Hidden::nan);
  for (const char* const kernel : {"reference", "cpu_simd"}) {
    const PlanOptions options = testing::on_kernel(kernel);
    ASSERT_TRUE(testing::run_on_host(rows, options).ok());
    ASSERT_TRUE(testing::run_on_host(columns, options).ok());
    ASSERT_NO_FATAL_FAILURE(expect_same_outputs(columns, rows)) << kernel;
  }
}

// An output that overlaps the last column overlaps V.
TEST(TransposedV, IsCheckedToItsLastColumn) {
  Problem problem;
  problem.q = problem.k = TensorDesc::contiguous(DType::f8e4m3, {1, 1, 4, 16});
  problem.v = TensorDesc::contiguous(DType::f8e4m3, {1, 1, 16, 128});
  problem.o = TensorDesc::contiguous(DType::f32, {1, 1, 4, 16});
  problem.v_transposed = true;
  HostProblem host = bench::make_host_problem(problem, 1);
  const Result<Plan> plan = make_plan(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  Arguments args = host.arguments();
  ASSERT_TRUE(plan->run(args).ok());
  std::vector<float> memory(1024);
  args.v = memory.data();
  args.o = memory.data() + 16 * 128 / 4;
  EXPECT_TRUE(plan->run(args).ok());
  args.o = memory.data() + 16 * 128 / 4 - 1;
  EXPECT_THAT(plan->run(args).message(), HasSubstr("o: pointer"));
}

}  // namespace
}  // namespace flashcore
