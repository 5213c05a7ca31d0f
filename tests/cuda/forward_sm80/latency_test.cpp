// What forward_sm80_latency does on the host: which keys a block reads, and which problems have
// whole tiles only.
#include <gtest/gtest.h>

#include <utility>

#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/keys.hpp"
#include "cuda/forward_sm80/latency/whole_tiles.hpp"
#include "cuda/host/latency_params.hpp"

namespace flashcore::cuda::forward_sm80::latency {
namespace {

ForwardProblem mission() {
  ForwardProblem p;
  p.dtype = p.o_dtype = DType::f16;
  p.batch = 2;
  p.heads_q = p.heads_kv = 8;
  p.seqlen_q = p.seqlen_kv = 512;
  p.head_dim_qk = p.head_dim_v = 64;
  p.q = p.k = p.v = p.o = {8 * 512 * 64, 512 * 64, 64};
  p.alignment = Alignment::top_left;
  return p;
}

bool is_whole(const ForwardProblem& p, const Config& config = kConfigs[0]) {
  Params params{};
  params.problem = host::latency_params(p);
  params.problem.fills = p.head_dim_qk == config.head_dim && p.head_dim_v == config.head_dim;
  return set_whole_params(params, p, config);
}

constexpr int64_t kAmpere = 163 * 1024, kAda = 99 * 1024;

TEST(ForwardSm80LatencyConfig, TilesFitEveryFamily) {
  EXPECT_EQ(choose_config(64, 64, 512, true, kAmpere), 0);
  EXPECT_EQ(choose_config(64, 64, 512, true, kAda), 1) << "two passes of 256 keys";
  EXPECT_EQ(choose_config(96, 64, 512, true, kAmpere), 2);
  EXPECT_EQ(choose_config(64, 128, 512, true, kAda), 3);
  EXPECT_EQ(choose_config(136, 64, 512, true, kAmpere), -1);
  EXPECT_EQ(choose_config(64, 64, 512, true, 32 * 1024), -1);
  EXPECT_EQ(kConfigs[0].pass_keys(), 512);
}

TEST(ForwardSm80LatencyConfig, BlocksShareAnSmWhereThereAreMoreOrKeysAreFew) {
  for (const auto& [head_dim, alone] : {std::pair{64, 0}, {128, 2}}) {
    EXPECT_EQ(choose_config(head_dim, head_dim, 257, true, kAmpere), alone);
    EXPECT_EQ(choose_config(head_dim, head_dim, 256, true, kAmpere), alone + 1);
    EXPECT_EQ(choose_config(head_dim, head_dim, 0, true, kAmpere), alone + 1);
    EXPECT_EQ(choose_config(head_dim, head_dim, 4096, false, kAmpere), alone + 1);
    EXPECT_LE(2 * (kConfigs[static_cast<size_t>(alone) + 1].smem_bytes() + 2048), kAmpere);
  }
}

TEST(ForwardSm80LatencyKeys, WholeTilesEndWhereTheirSpanDoes) {
  for (const Config& config : kConfigs) {
    for (int len_kv = 0; len_kv <= 6 * config.warp_keys; len_kv += config.warp_keys) {
      for (const int high : {-700, -97, -64, -1, 0, 1, 63, 64, 500, 1 << 29}) {
        const attention::BandLimits limits{-attention::kMostRows, high, len_kv};
        for (int first = 0; first < 512; first += kBlockQ) {
          const KeySpan keys = key_span(attention::tile_range(limits, 512, first, first + kBlockQ,
                                                              attention::latency::kBlockKv),
                                        len_kv);
          EXPECT_EQ(keys.begin, 0);
          EXPECT_EQ(whole_end(limits, first), keys.end)
              << len_kv << " keys, high " << high << ", query " << first;
        }
      }
    }
  }
}

TEST(ForwardSm80LatencyKeys, NoWarpReadsPastTheKeys) {
  for (const Config& config : kConfigs) {
    const attention::BandLimits limits{-attention::kMostRows, 0, 3 * config.warp_keys};
    for (int first = 0; first < 512; first += kBlockQ) {
      const int end = whole_end(limits, first);
      EXPECT_LE((end + config.warp_keys - 1) / config.warp_keys * config.warp_keys, limits.len_kv);
    }
  }
}

TEST(ForwardSm80LatencyWhole, MissionAndCausalAre) {
  EXPECT_TRUE(is_whole(mission()));
  ForwardProblem causal = mission();
  causal.band.right = 0;
  EXPECT_TRUE(is_whole(causal));
  ForwardProblem strided = mission();  // [batch, row, head, column]
  strided.q = strided.k = strided.v = {8 * 512 * 64, 64, 8 * 64};
  EXPECT_TRUE(is_whole(strided));
}

TEST(ForwardSm80LatencyWhole, WhatEndsEarlyIsNot) {
  ForwardProblem p = mission();
  p.seqlen_q = 500;
  EXPECT_FALSE(is_whole(p)) << "queries";
  p = mission();
  p.seqlen_kv = 480;
  EXPECT_FALSE(is_whole(p)) << "half a tile of keys";
  p.head_dim_qk = p.head_dim_v = 128;
  EXPECT_TRUE(is_whole(p, kConfigs[2])) << "a tile of 32 keys";
  p = mission();
  p.head_dim_v = 56;
  EXPECT_FALSE(is_whole(p)) << "columns";
  p = mission();
  p.seqlens_kv.present = true;
  EXPECT_FALSE(is_whole(p)) << "entries differ";
  p = mission();
  p.band.left = 64;
  EXPECT_FALSE(is_whole(p)) << "keys begin later";
}

TEST(ForwardSm80LatencyWhole, PlacesFitIn32Bits) {
  const int64_t piece = kPieceElements, most = (int64_t{1} << 32) - 1;
  const auto one = [&](int64_t batch) { return pieces_of({batch * piece, 0, 0}, 2, 1, 1, 64); };
  EXPECT_FALSE(one(most).has_value());
  EXPECT_FALSE(one(most - 7).has_value());
  ASSERT_TRUE(one(most - 8).has_value());
  EXPECT_EQ(one(most - 8)->batch, static_cast<uint32_t>(most - 8));
  EXPECT_FALSE(one(-64).has_value()) << "backwards";
  const auto broadcast = pieces_of({int64_t{1} << 60, 64, 8}, 1, 3, 5, 64);
  ASSERT_TRUE(broadcast.has_value()) << "one entry may be anywhere";
  EXPECT_EQ(broadcast->at(0, 2, 4), 2 * 8 + 4);
}

}  // namespace
}  // namespace flashcore::cuda::forward_sm80::latency
