// What of forward_fp8_sm90 needs no GPU: its tiles and its rings.
#include <gtest/gtest.h>

#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/tile/ring.hpp"

namespace flashcore::cuda::forward_fp8_sm90::throughput {
namespace {

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

}  // namespace
}  // namespace flashcore::cuda::forward_fp8_sm90::throughput
