// Which peers are asked for which cases.
#include "bench/peers/peers.hpp"

#include <gtest/gtest.h>

#include "bench/cases/cases.hpp"

namespace flashcore::bench {
namespace {

Case of(DType dtype) { return square_case("one", dtype, 1, 2, 128, 64, true); }

TEST(AsksPeers, PlainCasesOfBoth) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_TRUE(asks_peers(of(dtype), false));
    EXPECT_TRUE(asks_peers(of(dtype), true));
    EXPECT_TRUE(asks_native_peers(of(dtype)));
  }
}

TEST(AsksPeers, Fp8OfThoseInThisProcess) {
  Case one = of(DType::f8e4m3);
  EXPECT_TRUE(asks_native_peers(one));
  EXPECT_FALSE(asks_peers(one, false));
  one.o_dtype = DType::f8e4m3;
  EXPECT_TRUE(asks_native_peers(one));
  EXPECT_FALSE(asks_peers(one, false));
}

TEST(AsksPeers, OptionsThatTheyHave) {
  Case bias = of(DType::bf16), mask = bias, alibi = bias, dropout = bias;
  bias.bias = DType::bf16;
  mask.mask = alibi.alibi = true;
  dropout.dropout_p = 0.1f;
  for (const bool backward : {false, true}) {
    for (const Case& one : {bias, mask, alibi}) EXPECT_TRUE(asks_peers(one, backward));
    EXPECT_FALSE(asks_peers(dropout, backward)) << "their bits are others";
  }
  EXPECT_FALSE(asks_native_peers(bias));
}

TEST(AsksPeers, FeaturesOfNone) {
  Case scales = of(DType::f8e4m3), largest = scales, window = of(DType::bf16), output = window;
  scales.scales = true;
  largest.o_dtype = DType::f8e4m3;
  largest.largest = true;
  window.window_left = 16;
  output.o_dtype = DType::f8e4m3;
  for (const Case& one : {scales, largest, window, output}) {
    EXPECT_FALSE(asks_native_peers(one)) << features_text(one);
    EXPECT_FALSE(asks_peers(one, false)) << features_text(one);
  }
  EXPECT_TRUE(asks_peers(window, true)) << "of the backward pass";
}

}  // namespace
}  // namespace flashcore::bench
