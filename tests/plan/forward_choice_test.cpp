// The choice of the fastest forward kernel or tile, and why a kernel leaves a problem to another.
#include "plan/forward_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cuda/forward_sm80/latency/work.hpp"
#include "cuda/forward_sm80/throughput/work.hpp"
#include "cuda/forward_sm90/latency/work.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore {
namespace {

namespace sm80 = cuda::forward_sm80;
namespace sm90 = cuda::forward_sm90;
using testing::HasSubstr, testing::Not;
using tuning::Tuning;

constexpr int64_t kHopperSms = 132, kHopperMemory = 227 * 1024;

DeviceInfo gpu(const char* name, int32_t compute_capability, int32_t multiprocessors,
               int64_t kilobytes) {
  DeviceInfo device;
  device.device = {DeviceKind::cuda, 0};
  device.name = name;
  device.compute_capability = compute_capability;
  device.multiprocessors = multiprocessors;
  device.shared_memory_per_block = kilobytes * 1024;
  return device;
}

const DeviceInfo kH200 = gpu("NVIDIA H200", 90, 132, 227);
const DeviceInfo kA100 = gpu("NVIDIA A100-SXM4-80GB", 80, 108, 163);
const DeviceInfo kL40 = gpu("NVIDIA L40", 89, 142, 99);
const DeviceInfo kL4 = gpu("NVIDIA L4", 89, 58, 99);

ForwardProblem problem(int64_t heads, int64_t queries, int64_t keys, int64_t head_dim,
                       bool causal = false) {
  ForwardProblem p;
  p.dtype = p.o_dtype = DType::bf16;
  p.batch = 1;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = queries;
  p.seqlen_kv = keys;
  p.head_dim_qk = p.head_dim_v = head_dim;
  p.softmax_scale = 0.125F;
  if (causal) p.band.right = 0;
  return p;
}
ForwardProblem square(int64_t heads, int64_t seqlen, int64_t head_dim, bool causal = false) {
  return problem(heads, seqlen, seqlen, head_dim, causal);
}

// ---- limits that are data

// Tiles of 192 queries where they fill the GPU nearly as well as tiles of 128 do; not where a head has 512
// queries (three tiles for the work of 2.7) or the last round is short.
TEST(Fp8In192x64, IsChosenWhereItFillsTheGpu) {
  const auto gains = [](int64_t queries, int64_t heads, bool causal) {
    return sm90_fp8_192x64_declines(square(heads, queries, 128, causal), {.device = kH200}).empty();
  };
  EXPECT_TRUE(gains(16384, 16, false));
  EXPECT_TRUE(gains(2048, 128, false));
  EXPECT_FALSE(gains(512, 512, false));
  EXPECT_TRUE(gains(512, 512, true));
  EXPECT_FALSE(gains(2048, 16, false));
  EXPECT_FALSE(gains(2048, 16, true));
  EXPECT_THAT(
      sm90_fp8_192x64_declines(square(16, 16384, 128), {.device = kH200, .batch_invariant = true}),
      HasSubstr("batch_invariant: is set"));
}

// ---- work units, as in the kernels' plans

TEST(WorkUnits, OfSm90LatencyFollowItsPlan) {
  const auto unit = [](int64_t heads, int64_t seqlen, int64_t head_dim) {
    return sm90::latency::work_unit(square(heads, seqlen, head_dim), kHopperSms);
  };
  EXPECT_EQ(unit(8, 512, 64).sms, 2);
  EXPECT_EQ(unit(8, 512, 64).units_at_once, 1);
  EXPECT_EQ(unit(8, 512, 64).most_at_once, 2);
  EXPECT_EQ(unit(32, 512, 64).sms, 2);
  EXPECT_EQ(unit(32, 512, 64).units_at_once, 2);
  EXPECT_EQ(unit(32, 256, 64).sms, 1);
  EXPECT_EQ(unit(32, 256, 64).step_keys, 128);
  EXPECT_EQ(unit(16, 256, 64).sms, 2);
  EXPECT_EQ(unit(32, 512, 128).most_at_once, 1);
}

// Two blocks of four warps per SM where a block may use twice their memory.
TEST(WorkUnits, OfSm80LatencyFollowItsPlan) {
  const auto unit = [](const ForwardProblem& p, int64_t multiprocessors, int64_t kilobytes) {
    const WorkUnit one = sm80::latency::work_unit(p, multiprocessors, kilobytes * 1024);
    EXPECT_EQ(one.block_q, 32);
    return std::pair(one.step_keys, one.units_at_once);
  };
  EXPECT_EQ(unit(square(8, 512, 64), 132, 227), std::pair(int64_t{512}, int64_t{1}));
  EXPECT_EQ(unit(square(16, 512, 64), 132, 227), std::pair(int64_t{256}, int64_t{2}));
  EXPECT_EQ(unit(square(8, 512, 64), 108, 163), std::pair(int64_t{256}, int64_t{2}));
  EXPECT_EQ(unit(square(8, 512, 64), 142, 99), std::pair(int64_t{256}, int64_t{1}));
  EXPECT_EQ(unit(square(8, 512, 128), 132, 227), std::pair(int64_t{256}, int64_t{1}));
}

TEST(WorkUnits, OfSm80ThroughputFitTheSharedMemory) {
  const auto at_once = [](int64_t head_dim, int64_t kilobytes) {
    return sm80::throughput::work_unit(square(8, 512, head_dim), kilobytes * 1024).units_at_once;
  };
  EXPECT_EQ(at_once(64, 99), 2);
  EXPECT_EQ(at_once(128, 227), 2);
  EXPECT_EQ(at_once(128, 163), 1);
  EXPECT_EQ(at_once(128, 0), 1);
}

// ---- between kernels

class OnHopper : public testing::TestWithParam<Throughput> {
 protected:
  static LatencyChoice choice(const ForwardProblem& p) {
    return sm90_latency_choice(p, tuning_for(kH200), kHopperMemory, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Next, OnHopper, testing::Values(Throughput::sm80, Throughput::sm90));

TEST_P(OnHopper, AFullMachineIsTheThroughputKernels) {
  EXPECT_TRUE(choice(square(8, 512, 64)).is_latency());
  EXPECT_TRUE(choice(square(8, 512, 128, true)).is_latency());
  EXPECT_FALSE(choice(square(256, 512, 64)).is_latency());
  EXPECT_FALSE(choice(square(16, 16384, 128, true)).is_latency());
}

TEST_P(OnHopper, MoreQueriesPerBlockAreForWideHeads) {
  EXPECT_TRUE(choice(square(8, 1024, 128)).is_latency_wide());
  EXPECT_FALSE(choice(square(8, 512, 128)).is_latency_wide());
  for (const int64_t heads : {8, 16, 32, 64}) {
    EXPECT_FALSE(choice(square(heads, 1024, 64)).is_latency_wide()) << heads;
  }
  EXPECT_TRUE(choice(square(8, 128, 128)).is_latency_wide()) << "one step of keys";
  const LatencyChoice larger = choice(square(256, 4096, 128));
  EXPECT_FALSE(larger.is_latency() || larger.is_latency_wide());
  EXPECT_FALSE(larger.is_measured);
}

TEST_P(OnHopper, TimesGrowWithTheProblem) {
  for (const int64_t head_dim : {64, 96, 128}) {
    double latency = 0, throughput = 0;
    for (int64_t heads = 1; heads <= 256; heads *= 2) {
      const LatencyChoice now = choice(square(heads, 1024, head_dim));
      EXPECT_GE(now.latency_us, latency);
      EXPECT_GE(now.throughput_us, throughput);
      latency = now.latency_us, throughput = now.throughput_us;
    }
  }
}

TEST(Sm80Latency, IsForFewBlocks) {
  const auto is_latency = [](const ForwardProblem& p, const DeviceInfo& device) {
    return sm80_latency_choice(p, tuning_for(device), device.shared_memory_per_block).is_latency();
  };
  for (const DeviceInfo& device : {kH200, kA100, kL40}) {
    SCOPED_TRACE(device.name);
    EXPECT_TRUE(is_latency(square(8, 512, 64), device));
    EXPECT_FALSE(is_latency(square(32, 1024, 128), device));
    EXPECT_FALSE(is_latency(square(256, 4096, 64), device));
  }
  EXPECT_TRUE(is_latency(square(8, 128, 64), kL4));
  EXPECT_FALSE(is_latency(square(32, 512, 64), kL4)) << "512 blocks for 58 SMs";
}

TEST(Sm80Latency, MustWinByMoreThanPredictionsAreOffWhereNobodyMeasured) {
  LatencyChoice choice{.latency_us = 10, .throughput_us = 10.5};
  EXPECT_TRUE(choice.is_latency());
  choice.margin = 0.1;
  EXPECT_FALSE(choice.is_latency());
  choice.throughput_us = 11.5;
  EXPECT_TRUE(choice.is_latency());
  choice.is_measured = false;
  EXPECT_FALSE(choice.is_latency());
  const LatencyChoice measured =
      sm80_latency_choice(square(8, 512, 64), tuning_for(kH200), 1 << 17);
  EXPECT_EQ(measured.margin, 0);
  EXPECT_GT(sm80_latency_choice(square(8, 512, 64), tuning_for(kL4), 1 << 17).margin, 0.01);
}

TEST(Declines, SayWhereTimesWereNotMeasured) {
  PlanContext context;
  context.device = kL4;
  const ForwardProblem p = square(32, 256, 64);
  EXPECT_THAT(sm80_latency_declines(p, context),
              HasSubstr("not measured on this GPU: times are scaled from NVIDIA H200"));
  context.device = kH200;
  const std::string measured = sm80_latency_declines(square(32, 1024, 128), context);
  EXPECT_THAT(measured, HasSubstr("would take about"));
  EXPECT_THAT(measured, Not(HasSubstr("not measured")));
}

// Queries of 32 heads, and keys and values of 8 in pages of so many rows.
ForwardProblem paged(int64_t queries, int64_t batch, int64_t page) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {batch, 32, queries, 128});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {512, 8, page, 128});
  p.page_table = TensorDesc::contiguous(DType::i32, {batch, 128});
  return tests::resolved(p);
}

TEST(Sm90ThroughputDeclines, FewQueriesAgainstManyKeysAreForTheKernelThatSplitsThem) {
  const auto declines = [](int64_t queries, int64_t keys, int64_t batch) {
    Problem p;
    p.q = p.o = TensorDesc::contiguous(DType::bf16, {batch, 8, queries, 128});
    p.k = p.v = TensorDesc::contiguous(DType::bf16, {batch, 8, keys, 128});
    return sm90_throughput_declines(tests::resolved(p), {.device = kH200});
  };
  EXPECT_THAT(declines(1, 8192, 1), HasSubstr("q: has 1 rows and k 8192"));
  EXPECT_EQ(declines(512, 8192, 1), "");
  EXPECT_EQ(declines(1, 512, 1), "");
  EXPECT_EQ(declines(1, 8192, 100), "");
}

TEST(Sm90PagedDeclines, FewRowsAreForTheKernelThatSplitsTheirKeys) {
  const auto declines = [](int64_t queries, int64_t batch, int64_t page = 64,
                           bool batch_invariant = false) {
    return sm90_paged_declines(paged(queries, batch, page),
                               {.device = kH200, .batch_invariant = batch_invariant});
  };
  EXPECT_THAT(declines(32, 1), HasSubstr("q: has 1024 rows in all heads, wanted 1584"));
  EXPECT_EQ(declines(64, 1), "");
  EXPECT_EQ(declines(64, 1, 16), "") << "short pages are as fast";
  EXPECT_EQ(declines(100, 4), "");
  EXPECT_EQ(declines(1, 1, 64, true), "") << "the choice must not depend on the batch";
}

TEST(Sm80PagedDeclines, FewQueriesAreForDecode) {
  const auto declines = [](int64_t queries, int64_t batch, bool batch_invariant = false) {
    return sm80_paged_declines(paged(queries, batch, 16),
                               {.device = kH200, .batch_invariant = batch_invariant});
  };
  // 12 rows per tile, or per tile that runs at once.
  EXPECT_THAT(declines(1, 1000), HasSubstr("q: has 32000 rows in all heads, wanted 384000"));
  EXPECT_THAT(declines(64, 1), HasSubstr("q: has 2048 rows in all heads, wanted 3168"));
  EXPECT_EQ(declines(128, 1), "");
  EXPECT_THAT(declines(16, 4), HasSubstr("q: has 2048 rows"));
  EXPECT_EQ(declines(32, 4), "");
  EXPECT_THAT(declines(512, 1, true), HasSubstr("batch_invariant: is set"));
}

TEST(Sm80PagedDeclines, APackedBatchHasSoManyQueriesInTheMean) {
  const auto declines = [](int64_t total_q, int64_t batch) {
    Problem p;
    p.q = p.o = TensorDesc::contiguous(DType::bf16, {total_q, 32, 128});
    p.cu_seqlens_q = TensorDesc::contiguous(DType::i32, {batch + 1});
    p.k = p.v = TensorDesc::contiguous(DType::bf16, {512, 8, 16, 128});
    p.page_table = TensorDesc::contiguous(DType::i32, {batch, 128});
    return sm80_paged_declines(tests::resolved(p), {.device = kH200});
  };
  EXPECT_EQ(declines(4 * 512, 4), "");
  EXPECT_EQ(declines(4 * 512, 64), "");
  EXPECT_THAT(declines(8 * 64, 64), HasSubstr("q: has 16384 rows in all heads, wanted 24576"));
  EXPECT_THAT(declines(0, 0), HasSubstr("q: has 0 rows"));
}

// ---- between tiles

const sm90::throughput::Config& tile(const ForwardProblem& p, const DeviceInfo& device = kH200) {
  return sm90::throughput::kConfigs[static_cast<size_t>(choose_sm90_tile(p, device))];
}

// d64/s512/causal of the standard report, where the last blocks of keys are half empty.
TEST(Sm90Tile, ManyCausalHeadsGetTheirFastest) {
  EXPECT_EQ(tile(square(1024, 512, 64, true)).block_q(), 192);
  EXPECT_EQ(tile(square(1024, 256, 64, true)).block_kv, 64);
}

TEST(Sm90Tile, ManyRowsAreTheTallTiles) {
  for (const bool causal : {false, true}) {
    EXPECT_EQ(tile(square(8, 128, 64, causal)).block_q(), 64);
    EXPECT_EQ(tile(square(1024, 4096, 64, causal)).block_q(), 192);
  }
}

TEST(Sm90Tile, TheRestHasOneTile) {
  for (const int64_t head_dim : {72, 96, 128, 192, 256}) {
    const ForwardProblem p = square(8, 128, head_dim);
    EXPECT_EQ(sm90::throughput::tile_candidates(p).size(), 1U) << head_dim;
    EXPECT_EQ(tile(p).block_q(), 128);
  }
  ForwardProblem capped = square(8, 128, 64);
  capped.softcap = 30;
  EXPECT_EQ(sm90::throughput::tile_candidates(capped).size(), 1U);
  EXPECT_EQ(choose_sm90_tile(square(8, 128, 264), kH200), -1);
}

TEST(Sm90Tile, AnyShapeGetsOne) {
  for (const int64_t seqlen : {0, 1, 63, 64, 65, 191, 192, 193, 1 << 20}) {
    for (const int64_t heads : {0, 1, 1 << 15}) {
      for (const int32_t multiprocessors : {0, 1, 132}) {
        for (const bool causal : {false, true}) {
          const ForwardProblem p = square(heads, seqlen, 64, causal);
          EXPECT_EQ(tile(p, gpu("", 90, multiprocessors, 227)).head_dim_qk, 64);
        }
      }
    }
  }
}

TEST(Sm90Tile, UnevenTilesAreHandedOutOneByOne) {
  const sm90::throughput::Config& tall = sm90::throughput::kConfigs[0];
  ASSERT_EQ(tall.block_q(), 192);
  EXPECT_FALSE(is_uneven(square(8, 384, 64), tall));
  EXPECT_TRUE(is_uneven(square(8, 512, 64), tall)) << "the last tile has two thirds";
  EXPECT_TRUE(is_uneven(square(8, 384, 64, true), tall));
}

}  // namespace
}  // namespace flashcore
