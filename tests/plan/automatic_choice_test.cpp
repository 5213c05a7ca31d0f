// The CUDA kernel that a problem gets automatically, by GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "plan/kernel_choice.hpp"
#include "plan/table.hpp"
#include "problem/problem.hpp"

namespace flashcore {
namespace {

PlanContext gpu(int32_t compute_capability, int32_t multiprocessors, int64_t kilobytes) {
  PlanContext context;
  context.device.device = {DeviceKind::cuda, 0};
  context.device.compute_capability = compute_capability;
  context.device.multiprocessors = multiprocessors;
  context.device.shared_memory_per_block = kilobytes * 1024;
  return context;
}

const PlanContext kH200 = gpu(90, 132, 227), kA100 = gpu(80, 108, 163), kL40 = gpu(89, 142, 99),
                  kL4 = gpu(89, 58, 99);

Problem dense(int64_t heads, int64_t seqlen_q, int64_t seqlen_kv, int64_t head_dim) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::f16, {1, heads, seqlen_q, head_dim});
  p.k = p.v = TensorDesc::contiguous(DType::f16, {1, heads, seqlen_kv, head_dim});
  return p;
}

std::string choice(const Problem& problem, const PlanContext& context) {
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  const Result<KernelChoice> chosen = choose_kernel(*resolved, context);
  return chosen.ok() ? chosen->kernel->name : chosen.status().message();
}

std::string declined(const std::string& name, const Problem& problem, const PlanContext& context) {
  for (const Variant& kernel : variants()) {
    if (kernel.name == name) return kernel.declines(*resolve(problem), context);
  }
  return "is not in the table";
}

bool built_for(const char* target) {
  return build_info().cuda_targets.find(target) != std::string::npos;
}

TEST(AutomaticChoice, OnHopper) {
  if (!built_for("90a")) GTEST_SKIP() << "this build has no code for 90a";
  EXPECT_EQ(choice(dense(8, 512, 512, 64), kH200), "forward_sm90_latency");
  EXPECT_EQ(choice(dense(8, 1024, 1024, 128), kH200), "forward_sm90_latency:wide");
  EXPECT_EQ(choice(dense(16, 512, 512, 128), kH200), "forward_sm90_latency:wide");
  EXPECT_EQ(choice(dense(32, 4096, 4096, 128), kH200), "forward_sm90_throughput");
  Problem shared = dense(8, 512, 512, 64);
  shared.q = shared.o = TensorDesc::contiguous(DType::f16, {2, 8, 512, 64});
  shared.k = shared.v = TensorDesc::strided(DType::f16, {2, 8, 512, 64}, {0, 512 * 64, 64, 1});
  EXPECT_EQ(choice(shared, kH200), "forward_sm80_latency") << "tensor maps have no stride of 0";
  EXPECT_EQ(declined("forward_sm90_latency:wide", dense(32, 512, 512, 64), kH200).find("inf"),
            std::string::npos);
}

// A cache of 16 sequences in pages of 64 latent rows, whose first 512 columns are V.
Problem latent(int64_t heads, int64_t seqlen_q) {
  Problem p;
  p.q = TensorDesc::contiguous(DType::bf16, {16, heads, seqlen_q, 576});
  p.o = TensorDesc::contiguous(DType::bf16, {16, heads, seqlen_q, 512});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {2048, 1, 64, 576});
  p.v.shape[3] = 512;
  p.page_table = TensorDesc::contiguous(DType::i32, {16, 128});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {16});
  return p;
}

TEST(AutomaticChoice, OfLatentRows) {
  if (!built_for("90a")) GTEST_SKIP() << "this build has no code for 90a";
  for (const int64_t heads : {1, 8, 16, 20, 128}) {
    EXPECT_EQ(choice(latent(heads, 1), kH200), "mla_sm90") << heads << " heads";
    EXPECT_EQ(choice(latent(heads, 1), kA100), "decode_sm80");
  }
  Problem problem = latent(128, 2);
  problem.tree_mask = TensorDesc::contiguous(DType::i32, {1, 2, 1});
  problem.cache_leftpad = TensorDesc::contiguous(DType::i32, {16});
  EXPECT_EQ(choice(problem, kH200), "mla_sm90");
  problem = latent(128, 1);
  problem.v = TensorDesc::contiguous(DType::bf16, {2048, 1, 64, 512});
  EXPECT_EQ(choice(problem, kH200), "decode_sm80") << "V is not in K";
}

TEST(AutomaticChoice, OfLatentRowsIsByQueriesAndHeads) {
  if (!built_for("90a")) GTEST_SKIP() << "this build has no code for 90a";
  EXPECT_EQ(choice(latent(1, 3), kH200), "mla_sm90");
  EXPECT_EQ(choice(latent(1, 16), kH200), "decode_sm80");
  EXPECT_EQ(declined("mla_sm90", latent(1, 16), kH200),
            "q: has 16 queries of 1 head, and each takes as long as 64 heads");
  EXPECT_EQ(choice(latent(5, 16), kH200), "decode_sm80");
  EXPECT_EQ(choice(latent(6, 16), kH200), "mla_sm90");
  PlanContext invariant = kH200;
  invariant.batch_invariant = true;
  EXPECT_EQ(choice(latent(128, 1), invariant), "decode_sm80");
  EXPECT_EQ(declined("mla_sm90", latent(128, 1), invariant),
            "batch_invariant: is set, and it does not compute every batch");
}

// Few queries against keys in one piece, all of equal lengths.
struct FewQueries {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim;
  bool
      decode;  // whether decode_sm90 is chosen; what is chosen was at most 25% slower than the fastest
};

TEST(AutomaticChoice, OfFewQueriesIsByPredictedTimes) {
  if (!built_for("90a")) GTEST_SKIP() << "this build has no code for 90a";
  for (const FewQueries& one : {FewQueries{1, 32, 8, 1, 1500, 128, true},
                                {1, 16, 2, 1, 1200, 128, true},
                                {8, 32, 8, 1, 700, 128, true},
                                {48, 32, 8, 1, 4000, 128, true},
                                {40, 28, 4, 1, 1500, 128, true},
                                {200, 16, 2, 1, 700, 128, true},
                                {16, 32, 32, 1, 8192, 128, true},
                                {1, 32, 8, 5, 3000, 64, false},
                                {1, 28, 4, 10, 12232, 128, true},
                                {25, 32, 16, 1, 1356, 128, true},
                                {1, 32, 8, 6, 3500, 128, true},
                                {16, 32, 8, 6, 3500, 128, true},
                                {16, 32, 8, 24, 3500, 128, false},
                                {8, 16, 16, 40, 2500, 64, false},
                                {8, 20, 20, 1, 1500, 64, false}}) {
    Problem p;
    p.q = p.o =
        TensorDesc::contiguous(DType::bf16, {one.batch, one.heads_q, one.seqlen_q, one.head_dim});
    p.k = p.v =
        TensorDesc::contiguous(DType::bf16, {one.batch, one.heads_kv, one.seqlen_kv, one.head_dim});
    EXPECT_EQ(choice(p, kH200) == "decode_sm90", one.decode)
        << one.batch << " x " << one.seqlen_kv << ", " << one.heads_q << " heads over "
        << one.heads_kv << ", " << one.seqlen_q << " queries: " << choice(p, kH200) << ", "
        << declined("decode_sm90", p, kH200);
  }
  Problem p = dense(8, 1, 700, 128);
  EXPECT_EQ(declined("decode_sm90", p, kH200).substr(0, 16), "would take about");
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {1});
  EXPECT_EQ(choice(p, kH200), "decode_sm90") << "a length of its own";
}

TEST(AutomaticChoice, BeforeHopper) {
  if (!built_for("80")) GTEST_SKIP() << "this build has no code for 80";
  for (const PlanContext& context : {kA100, kL40}) {
    EXPECT_EQ(choice(dense(8, 512, 512, 64), context), "forward_sm80_latency");
    EXPECT_EQ(choice(dense(8, 128, 128, 128), context), "forward_sm80_latency");
    EXPECT_EQ(choice(dense(32, 4096, 4096, 128), context), "forward_sm80_throughput");
    EXPECT_EQ(choice(dense(32, 1024, 1024, 64), context), "forward_sm80_throughput");
    EXPECT_EQ(choice(dense(8, 512, 512, 256), context), "forward_sm80_throughput") << "a wide head";
  }
  EXPECT_EQ(choice(dense(8, 128, 128, 64), kL4), "forward_sm80_latency");
  EXPECT_EQ(choice(dense(16, 512, 512, 64), kL4), "forward_sm80_throughput")
      << "256 blocks for 58 SMs";
}

// Problems that forward_sm80_latency leaves to forward_sm80_throughput although it computes them.
TEST(AutomaticChoice, BeforeHopperIsByWhatIsKnown) {
  if (!built_for("80")) GTEST_SKIP() << "this build has no code for 80";
  Problem problem = dense(8, 512, 512, 64);
  PlanContext context = kA100;
  context.batch_invariant = true;
  EXPECT_EQ(declined("forward_sm80_latency", problem, context),
            "batch_invariant: is set, and the choice depends on the batch");
  EXPECT_EQ(choice(problem, context), "forward_sm80_throughput");
  problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {1});
  EXPECT_EQ(declined("forward_sm80_latency", problem, kA100),
            "sequences have lengths or diagonals of their own, so its time cannot be predicted");
  EXPECT_EQ(declined("forward_sm80_latency", dense(8, 1, 2048, 64), kA100),
            "few queries against many keys: forward_sm80_throughput splits the keys among several "
            "blocks");
  EXPECT_EQ(declined("forward_sm80_latency", dense(8, 4096, 4096, 64), kA100),
            "the problem is larger than those it was measured on");
  EXPECT_EQ(declined("forward_sm80_latency", dense(32, 768, 768, 128), kA100).substr(0, 16),
            "would take about");
}

}  // namespace
}  // namespace flashcore
