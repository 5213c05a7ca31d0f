// The host's half of quantisation on a GPU: how rows are cut, what is refused, and fp8 by integers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "bench/tensors/random.hpp"
#include "cuda/attention/encode_fp8.hpp"
#include "cuda/convert/quantize/supports.hpp"
#include "problem/dtype.hpp"

namespace flashcore::cuda::convert::quantize {
namespace {

using attention::fp8_of, attention::kE4M3, attention::kE5M2;
using ::testing::HasSubstr;

void expect_encoded(float x) {
  const bool nan = std::isnan(x);
  ASSERT_EQ(fp8_of<kE4M3>(x), nan ? 0x7F : encode<kF8E4M3>(x)) << x;
  ASSERT_EQ(fp8_of<kE5M2>(x), nan ? 0x7F : encode<kF8E5M2>(x)) << x;
}

TEST(QuantizeRows, EncodesAsTheReference) {
  bench::Random random(3);
  for (int n = 0; n < 200000; ++n) {
    const auto x =
        static_cast<float>(std::ldexp(random.normal(), static_cast<int>(random.integer(-24, 16))));
    expect_encoded(x);
  }
  for (int n = -4096; n <= 4096; ++n) {  // ties at all sizes
    for (int step = -20; step < 8; ++step) {
      const float x = std::ldexp(static_cast<float>(n), step);
      expect_encoded(x);
    }
  }
  for (const float x :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
        std::numeric_limits<float>::quiet_NaN(), -0.0F, std::numeric_limits<float>::denorm_min()}) {
    expect_encoded(x);
    expect_encoded(-x);
  }
}

QuantizeProblem random_problem(bench::Random& random) {
  QuantizeProblem p;
  p.batch = random.integer(1, 3);
  p.heads = random.integer(1, 3);
  p.rows = random.integer(1, 3000);
  p.head_dim = random.integer(1, 600);
  p.scale_batches = random.chance(0.7) ? p.batch : 1;
  p.scale_heads = random.chance(0.7) ? p.heads : 1;
  p.scale_block = random.chance(0.3) ? p.rows : random.integer(1, 700);
  p.scale_blocks = random.chance(0.2) ? 1 : (p.rows + p.scale_block - 1) / p.scale_block;
  return p;
}

// Every row is in one tile, and tiles have whole groups, or lie in one.
TEST(QuantizeRows, CutsEachRowOnce) {
  bench::Random random(1);
  for (int n = 0; n < 2000; ++n) {
    const QuantizeProblem p = random_problem(random);
    const Cut cut = cut_of(p);
    int64_t next = 0;
    for (int64_t tile = 0; tile < cut.tiles; ++tile) {  // as find_tile of kernel.cuh
      const int64_t span = tile / cut.tiles_per_span * cut.span;
      const int64_t first = span + tile % cut.tiles_per_span * cut.tile_rows;
      const int64_t end = std::min({first + cut.tile_rows, span + cut.span, p.rows});
      if (first >= end) continue;
      ASSERT_EQ(first, next) << n;
      if (cut.in_tiles) {
        ASSERT_EQ(first % cut.block, 0) << n;
        ASSERT_LE((end - first + cut.block - 1) / cut.block, 256) << n;
      } else {
        ASSERT_EQ(first / cut.block, (end - 1) / cut.block) << n;
      }
      next = end;
    }
    ASSERT_EQ(next, p.rows) << n;
    ASSERT_EQ(cut.block, p.scale_blocks > 1 ? std::min(p.scale_block, p.rows) : p.rows);
    if (p.scale_batches != p.batch || p.scale_heads != p.heads) {
      ASSERT_FALSE(cut.in_tiles);
    }
  }
}

TEST(QuantizeRows, RefusesWhatALaunchDoesNotHold) {
  bench::Random random(1);
  QuantizeProblem p = random_problem(random);
  DeviceInfo device;
  device.compute_capability = 90;
  EXPECT_EQ(refusal(p, device, "80+ptx;90a"), "");
  EXPECT_THAT(refusal(p, device, "80"), HasSubstr("9.0"));
  p.rows = (int64_t{1} << 30) + 1;
  EXPECT_THAT(refusal(p, device, "80+ptx;90a"), HasSubstr("rows per sequence, wanted at most"));
  p.rows = int64_t{1} << 30;
  p.heads = p.scale_heads = 1 << 20;
  EXPECT_THAT(refusal(p, device, "80+ptx;90a"), HasSubstr("blocks in a launch, wanted at most"));
}

}  // namespace
}  // namespace flashcore::cuda::convert::quantize
