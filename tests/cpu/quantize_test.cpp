// Quantisation against docs/semantics.md, on every instruction set.
#include "flashcore/quantize.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cpu/each_target.hpp"
#include "tests/cpu/quantize_case.hpp"
#include "tests/cpu/run_on_host.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostTensor;
using bench::Random;
using ::testing::HasSubstr;
using testing::make_quantize;
using testing::QuantizeCase;

PlanOptions on_threads(int threads) {
  PlanOptions options;
  options.threads = threads;
  return options;
}

Quantize dense(DType dtype, std::initializer_list<int64_t> shape, const TensorDesc& scale) {
  Quantize what;
  what.x = TensorDesc::contiguous(dtype, shape);
  what.x_out = TensorDesc::contiguous(DType::f8e4m3, shape);
  what.scale = scale;
  return what;
}

TEST(Quantize, IsItsDefinition) {
  EachTarget targets;
  for (uint64_t seed = 0; seed < problem_count(400); ++seed) {
    const std::string target = targets.use(seed);
    Random random(seed);
    QuantizeCase one = testing::random_quantize(random, seed % 8 == 0 ? 700 : 90);
    const Status status = quantize(one.what, one.arguments(), on_threads(2));
    const std::string where = fmt::format("seed {} {}: {}", seed, target, one.text());
    ASSERT_TRUE(status.ok()) << where << ": " << status.message();
    testing::expect_quantized(one, where);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Quantize, HasTheSameBitsOnAnyThreads) {
  for (const int64_t block : {0, 1, 64}) {
    Quantize what =
        dense(DType::bf16, {2, 3, 1000, 40},
              TensorDesc::contiguous(DType::f32, {1, 3, block == 0 ? 1 : (999 / block) + 1}));
    what.scale_block = block;
    what.mean = TensorDesc::contiguous(DType::f32, {2, 3, 40});
    QuantizeCase first = make_quantize(what, 5);
    ASSERT_TRUE(quantize(what, first.arguments(), on_threads(1)).ok());
    for (const int threads : {2, 5}) {
      QuantizeCase again = make_quantize(what, 5);
      ASSERT_TRUE(quantize(what, again.arguments(), on_threads(threads)).ok());
      for (const char* const name : {"x_out", "scale", "mean"}) {
        EXPECT_TRUE(again.at(name).same_elements(first.at(name))) << name << ' ' << threads;
      }
    }
  }
}

// Every number between two neighbours of fp8, at both ends of the range.
TEST(Quantize, RoundsToNearestEven) {
  EachTarget targets;
  for (uint64_t n = 0; n < 3; ++n) {
    targets.use(n);
    for (const DType out : {DType::f8e4m3, DType::f8e5m2}) {
      Quantize what =
          dense(DType::f32, {1, 1, 64, 128}, TensorDesc::contiguous(DType::f32, {1, 1}));
      what.x_out.dtype = out;
      QuantizeCase one = make_quantize(what, 3);
      Random random(n);
      one.at("x").fill([&] {
        return std::ldexp(static_cast<double>(random.integer(-64, 64)),
                          static_cast<int>(random.integer(-22, 2)));
      });
      one.at("x").set(0, out == DType::f8e4m3 ? 448 : 57344);  // the scale is 1
      ASSERT_TRUE(quantize(what, one.arguments()).ok());
      ASSERT_EQ(one.at("scale").get(0), 1);
      testing::expect_quantized(one, "ties");
    }
  }
}

TEST(Quantize, KeepsTheSmallestAndTheLargestNumbers) {
  const auto tiny = static_cast<double>(std::numeric_limits<float>::denorm_min());
  const auto huge = static_cast<double>(std::numeric_limits<float>::max());
  for (const double size : {tiny, 300 * tiny, 0x1p-126, huge}) {
    const Quantize what =
        dense(DType::f32, {1, 1, 1, 8}, TensorDesc::contiguous(DType::f32, {1, 1}));
    QuantizeCase one = make_quantize(what, 1);
    one.at("x").fill([&] { return size; });
    ASSERT_TRUE(quantize(what, one.arguments()).ok());
    testing::expect_quantized(one, fmt::format("{}", size));
    EXPECT_GE(one.at("scale").get(0), 0x1p-126);
  }
}

// Attention takes the result directly: the error is the rounding's, and smoothing removes an offset
// from it. The LSE is off by scale * dot(q, mean), and nothing else.
TEST(Quantize, GivesWhatAttentionTakes) {
  Problem wide;
  wide.q = wide.o = TensorDesc::contiguous(DType::f32, {2, 4, 60, 64});
  wide.k = wide.v = TensorDesc::contiguous(DType::f32, {2, 2, 300, 64});
  wide.lse = TensorDesc::contiguous(DType::f32, {2, 4, 60});
  wide.causal = true;
  bench::HostProblem host = bench::make_host_problem(wide, 9);
  HostTensor& k = host.at("k");
  for (int64_t i = 0; i < k.elements(); ++i) k.set(i, k.get(i) + (i % 4 == 0 ? 20 : 0));
  ASSERT_TRUE(testing::run_on_host(host, {}).ok());

  double error[2] = {};
  for (const bool smooth : {false, true}) {
    Problem narrow = wide;
    narrow.q.dtype = narrow.k.dtype = narrow.v.dtype = DType::f8e4m3;
    narrow.q_scale = TensorDesc::contiguous(DType::f32, {2, 4});
    narrow.k_scale = narrow.v_scale = TensorDesc::contiguous(DType::f32, {2, 2, 5});
    narrow.kv_scale_block = 64;
    bench::HostProblem quantised = bench::make_host_problem(narrow, 9);
    HostTensor mean(TensorDesc::contiguous(DType::f32, {2, 2, 64}));
    for (const std::string name : {"q", "k", "v"}) {
      Quantize what;
      what.x = host.at(name).desc();
      what.x_out = quantised.at(name).desc();
      what.scale = quantised.at(name + "_scale").desc();
      if (name != "q") what.scale_block = 64;
      if (name == "k" && smooth) what.mean = mean.desc();
      const Status status =
          quantize(what, {.x = host.at(name).data(),
                          .x_out = quantised.at(name).data(),
                          .scale = static_cast<float*>(quantised.at(name + "_scale").data()),
                          .mean = static_cast<float*>(mean.data())});
      ASSERT_TRUE(status.ok()) << status.message();
    }
    ASSERT_TRUE(testing::run_on_host(quantised, {}).ok());
    double difference = 0, size = 0;
    for (int64_t i = 0; i < host.at("o").elements(); ++i) {
      const double right = host.at("o").get(i);
      difference += std::pow(quantised.at("o").get(i) - right, 2);
      size += right * right;
    }
    error[smooth ? 1 : 0] = std::sqrt(difference / size);
    for (int64_t row = 0; row < host.at("lse").elements(); ++row) {
      const int64_t b = row / 240, h = row / 60 % 4;
      double shift = 0;
      for (int64_t d = 0; d < 64; ++d) {
        const double q = host.at("q").get(row * 64 + d);
        shift += smooth ? q * mean.get((b * 2 + h / 2) * 64 + d) / 8 : 0;
      }
      ASSERT_NEAR(quantised.at("lse").get(row) + shift, host.at("lse").get(row), smooth ? 0.4 : 3)
          << row;
    }
  }
  EXPECT_LT(error[1], 0.06);
  EXPECT_GT(error[0], 2 * error[1]);
}

TEST(Quantize, OfNothingWritesScalesAndMeans) {
  for (const int64_t width : {0, 8}) {
    Quantize what = dense(DType::f32, {2, 3, width == 0 ? 5 : 0, width},
                          TensorDesc::contiguous(DType::f32, {2, 3}));
    what.mean = TensorDesc::contiguous(DType::f32, {2, 3, width});
    QuantizeCase one = make_quantize(what, 1);
    ASSERT_TRUE(quantize(what, one.arguments()).ok());
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(one.at("scale").get(i), 1);
    for (int64_t i = 0; i < one.at("mean").elements(); ++i) EXPECT_EQ(one.at("mean").get(i), 0);
  }
  // Without rows there are no blocks.
  for (const int64_t block : {0, 64}) {
    Quantize what = dense(DType::f32, {2, 3, 0, 8}, TensorDesc::contiguous(DType::f32, {2, 3, 0}));
    what.scale_block = block;
    QuantizeCase one = make_quantize(what, 1);
    EXPECT_TRUE(quantize(what, one.arguments()).ok());
    what.scale.shape[2] = 2;
    EXPECT_THAT(quantize(what, one.arguments()).message(),
                HasSubstr("scale: shape is [2, 3, 2], wanted [B, H, blocks] = [2, 3, 0]"));
  }
  // Extents without memory take no time.
  const int64_t most = (int64_t{1} << 31) - 1;
  Quantize what;
  what.x = TensorDesc::strided(DType::f32, {most, most, most, 0}, {0, 0, 0, 1});
  what.x_out = TensorDesc::strided(DType::f8e4m3, {most, most, most, 0}, {0, 0, 0, 1});
  what.scale = TensorDesc::contiguous(DType::f32, {1, 1});
  float scale = 0;
  const Status status = quantize(what, {.scale = &scale});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(scale, 1);
}

TEST(Quantize, RefusesWhatMakesNoSense) {
  Quantize what =
      dense(DType::bf16, {2, 3, 100, 16}, TensorDesc::contiguous(DType::f32, {2, 3, 2}));
  what.scale_block = 64;
  what.seqlens = TensorDesc::contiguous(DType::i32, {2});
  what.mean = TensorDesc::contiguous(DType::f32, {2, 3, 16});
  QuantizeCase one = make_quantize(what, 1);
  for (int64_t b = 0; b < 2; ++b) one.at("seqlens").set(b, 50);
  const auto refused = [&](const Quantize& changed, const QuantizeArguments& args,
                           const char* sentence, StatusCode code = StatusCode::invalid_argument,
                           const PlanOptions& options = {}) {
    const Status status = quantize(changed, args, options);
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr(sentence));
    EXPECT_TRUE(std::isnan(one.at("scale").get(0)));  // nothing was written
  };
  const auto with = [&](const auto& change) {
    Quantize changed = what;
    change(changed);
    return changed;
  };
  const auto wrong = [&](const auto& change, const char* sentence) {
    refused(with(change), one.arguments(), sentence);
  };
  wrong([](Quantize& q) { q.x.dtype = DType::f8e5m2; }, "x: dtype is f8e5m2, wanted f32, f16");
  wrong([](Quantize& q) { q.x.dtype = static_cast<DType>(77); }, "x: dtype is number 77");
  wrong([](Quantize& q) { q.x_out.dtype = DType::f16; }, "x_out: dtype is f16, wanted f8e4m3");
  wrong([](Quantize& q) { q.x_out.shape[2] = 99; }, "x_out: shape is [2, 3, 99, 16]");
  wrong([](Quantize& q) { q.x_out.stride[1] = 0; }, "x_out: strides");
  wrong([](Quantize& q) { q.x.stride[3] = 2; }, "x: stride of the last dimension is 2, wanted 1");
  wrong([](Quantize& q) { q.x.rank = 3; }, "cu_seqlens: is missing");
  wrong([](Quantize& q) { q.scale.shape[2] = 3; },
        "scale: shape is [2, 3, 3], wanted [B, H, blocks] =");
  wrong([](Quantize& q) { q.scale.rank = 9; }, "scale: rank is 9");
  wrong([](Quantize& q) { q.scale.rank = 2; },
        "scale_block: is 64, wanted 0 with a scale of rank 2");
  wrong([](Quantize& q) { q.scale.dtype = DType::f16; }, "scale: dtype is f16, wanted f32");
  wrong([](Quantize& q) { q.scale_block = -1; }, "scale_block: is -1, wanted 0 to");
  wrong([](Quantize& q) { q.mean->shape[2] = 15; }, "mean: shape is [2, 3, 15]");
  wrong([](Quantize& q) { q.seqlens->shape[0] = 3; }, "seqlens: shape is [3]");
  wrong([](Quantize& q) { q.max_seqlen = 5; }, "max_seqlen: is 5, wanted 0 to 0");
  QuantizeArguments args = one.arguments();
  args.x = nullptr;
  refused(what, args, "x: pointer is null");
  args = one.arguments();
  args.mean = args.scale;
  refused(what, args, "scale: pointer");
  // Rows of 32 bytes at a stride of 48, with a row of 16 bytes after each, or one byte too close.
  std::vector<std::byte> rows(size_t{48} * 600);
  Quantize woven = what;
  woven.x = TensorDesc::strided(DType::bf16, {2, 3, 100, 16}, {7200, 2400, 24, 1});
  woven.x_out = TensorDesc::strided(DType::f8e4m3, {2, 3, 100, 16}, {14400, 4800, 48, 1});
  args = one.arguments();
  args.x = rows.data();
  args.x_out = rows.data() + 31;
  refused(woven, args, "x_out: pointer");
  args.x_out = rows.data() + 32;
  QuantizeArguments apart = args;
  HostTensor scale(what.scale);
  apart.scale = static_cast<float*>(scale.data());
  EXPECT_TRUE(quantize(woven, apart).ok());
  args = one.arguments();
  args.x_out = const_cast<void*>(args.x);
  refused(what, args, "x_out: pointer");
  one.at("seqlens").set(1, 101);
  refused(what, one.arguments(), "seqlens: entry 1 is 101, wanted 0 to 100");
  one.at("seqlens").set(1, 100);
  PlanOptions gpu;
  gpu.device = {DeviceKind::cuda, 0};
  refused(what, one.arguments(), "GPU", StatusCode::unsupported, gpu);
  EXPECT_TRUE(quantize(what, one.arguments()).ok());
}

}  // namespace
}  // namespace flashcore
