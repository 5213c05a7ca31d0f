// What of forward_fp8_sm90 needs no GPU: its rings and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_fp8_sm90/throughput/supports.hpp"
#include "cuda/tile/ring.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

using testing::HasSubstr;

TEST(ForwardFp8Config, OnlyItsHeadDimensions) {
  for (const int64_t head_dim : {64, 128}) {
    EXPECT_TRUE(takes_head_dim(head_dim));
    EXPECT_EQ(kConfigs[static_cast<size_t>(choose_config(head_dim))].head_dim, head_dim);
  }
  for (const int64_t other : {0, 1, 63, 65, 96, 127, 129, 192, 256}) {
    EXPECT_FALSE(takes_head_dim(other)) << other;
  }
}

TEST(ForwardFp8Config, OptionsTakeNarrowerHeads) {
  const auto head_dim = [](int64_t qk, int64_t v) {
    const int config = choose_option_config(qk, v);
    return config < 0 ? 0 : kOptionConfigs[static_cast<size_t>(config)].head_dim;
  };
  EXPECT_EQ(head_dim(64, 64), 64);
  EXPECT_EQ(head_dim(16, 32), 64);
  EXPECT_EQ(head_dim(96, 96), 128);
  EXPECT_EQ(head_dim(64, 128), 128);
  EXPECT_EQ(head_dim(192, 128), 256);
  EXPECT_EQ(head_dim(256, 256), 256);
  for (const int64_t other : {0, 8, 72, 272}) EXPECT_EQ(head_dim(other, other), 0) << other;
}

TEST(ForwardFp8Ring, ParityChangesWithEachRound) {
  tile::Ring<3> ring;
  for (uint32_t passed = 0; passed < 20; ++passed, ring.next()) {
    EXPECT_EQ(ring.slot, passed % 3);
    EXPECT_EQ(ring.parity, passed / 3 % 2);
  }
}

Problem dense(int64_t head_dim, DType dtype = DType::f8e4m3) {
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {2, 4, 100, head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {2, 2, 200, head_dim});
  p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {2, 4, 100});
  return p;
}

std::string refusal(const Problem& problem, int32_t compute_capability = 90,
                    const char* targets = "80;89;90a") {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  DeviceInfo device;
  device.compute_capability = compute_capability;
  return refusal_on_gpu(throughput::supports(), targets, *resolved, {.device = device});
}

std::string option_refusal(const Problem& problem) {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  DeviceInfo device;
  device.compute_capability = 90;
  return refusal_on_gpu(throughput::option_supports(), "90a", *resolved, {.device = device});
}

TEST(ForwardFp8OptionRefusal, NamesWhatItDoesNotCompute) {
  EXPECT_THAT(option_refusal(dense(64, DType::bf16)), HasSubstr("q: dtype is bf16"));
  EXPECT_THAT(option_refusal(dense(72)), HasSubstr("q: head dimension is 72, wanted a multiple"));
  EXPECT_THAT(option_refusal(dense(512)), HasSubstr("q: head dimension is 512"));
  Problem p = dense(64);
  p.o.dtype = DType::f64;
  EXPECT_THAT(option_refusal(p), HasSubstr("o: dtype is f64"));
}

TEST(ForwardFp8OptionRefusal, ComputesOptions) {
  for (const int64_t head_dim : {16, 64, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
      Problem p = dense(head_dim, dtype);
      p.o.dtype = DType::f8e5m2;
      p.o_scale = p.amax_o = TensorDesc::contiguous(DType::f32, {2, 4});
      p.amax_s = TensorDesc::contiguous(DType::f32, {1, 1});
      p.softcap = 20;
      EXPECT_EQ(option_refusal(p), "");
    }
  }
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::f8e4m3, {300, 4, 64});
  p.k = p.v = TensorDesc::contiguous(DType::f8e4m3, {300, 4, 64});
  p.lse = TensorDesc::contiguous(DType::f32, {300, 4});
  p.cu_seqlens_q = p.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {3});
  EXPECT_EQ(option_refusal(p), "");
}

TEST(ForwardFp8Refusal, NamesWhatItDoesNotCompute) {
  EXPECT_THAT(refusal(dense(64), 89), HasSubstr("compute capability is 8.9, wanted 9.0"));
  EXPECT_THAT(refusal(dense(64), 90, "80;89"), HasSubstr("code for 80;89"));
  EXPECT_THAT(refusal(dense(64, DType::f8e5m2)), HasSubstr("q: dtype is f8e5m2, wanted f8e4m3"));
  EXPECT_THAT(refusal(dense(96)),
              HasSubstr("q: head dimension is 96, wanted a multiple of 64 up to 128"));
  Problem p = dense(128);
  p.v = TensorDesc::contiguous(DType::f8e4m3, {2, 2, 200, 64});
  p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, 64});
  EXPECT_THAT(refusal(p), HasSubstr("v: head dimension is 64"));
  p = dense(64);
  p.o.dtype = DType::f8e4m3;
  EXPECT_THAT(refusal(p), HasSubstr("o: dtype is f8e4m3"));
  p = dense(64);
  p.k = TensorDesc::strided(DType::f8e4m3, {2, 2, 200, 64}, {2 * 200 * 72, 200 * 72, 72, 1});
  EXPECT_THAT(refusal(p), HasSubstr("k: row stride is 72 elements"));
}

TEST(ForwardFp8Refusal, ComputesTheRest) {
  for (const int64_t head_dim : {64, 128}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      Problem p = dense(head_dim);
      p.o.dtype = dtype;
      p.causal = true;
      p.window_left = 100;
      p.q_scale = TensorDesc::contiguous(DType::f32, {2, 4});
      p.k_scale = TensorDesc::contiguous(DType::f32, {2, 2, 1});
      p.v_scale = TensorDesc::contiguous(DType::f32, {1, 1, 1});
      p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
      p.sinks = TensorDesc::contiguous(DType::f32, {4});
      EXPECT_EQ(refusal(p), "");
    }
  }
}

}  // namespace
}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
