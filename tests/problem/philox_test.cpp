// Philox4x32-10 against its published vectors, and the dropout mask that is derived from it.
#include "problem/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {
namespace {

// The known answers that come with the paper's implementation (Random123, philox4x32 of 10 rounds).
static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                            {0xffffffff, 0xffffffff}) ==
              PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                            {0xa4093822, 0x299f31d0}) ==
              PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

// The definition, spelled out: key = the first two words of Philox(offset; seed), word = number key
// % 4 of Philox([key / 4, query, head, batch]; that key), kept if word >= round(2^32 p).
bool keeps_by_definition(uint64_t seed, uint64_t offset, float p, uint32_t batch, uint32_t head,
                         uint32_t query, uint32_t key) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x & 0xffffffffu); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const PhiloxBlock drawn =
      philox4x32_10({low(offset), high(offset), 0, 0}, {low(seed), high(seed)});
  const PhiloxBlock words = philox4x32_10({key / 4, query, head, batch}, {drawn[0], drawn[1]});
  return static_cast<double>(words[key % 4]) >= std::floor(std::ldexp(double{p}, 32) + 0.5);
}

TEST(Dropout, FollowsItsDefinition) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1} << 40, ~uint64_t{0}}) {
    for (const uint64_t offset : {uint64_t{0}, uint64_t{3}, ~uint64_t{0} - 5}) {
      for (const float p : {0.0f, 0.1f, 0.5f, 0.999f, 1.0f}) {
        for (uint32_t n = 0; n < 64; ++n) {
          const uint32_t b = n % 3, h = n % 5, i = n * 7 % 11, j = n * 5 % 23;
          ASSERT_EQ(dropout_keeps(seed, offset, p, b, h, i, j),
                    keeps_by_definition(seed, offset, p, b, h, i, j))
              << seed << ' ' << offset << ' ' << p << ' ' << n;
        }
      }
    }
  }
}

TEST(Dropout, ThresholdAndRescale) {
  EXPECT_EQ(dropout_threshold(0.0f), 0u);
  EXPECT_EQ(dropout_threshold(0.5f), uint64_t{1} << 31);
  EXPECT_EQ(dropout_threshold(1.0f), uint64_t{1} << 32);  // exceeds any word: all are dropped
  EXPECT_EQ(dropout_rescale(0.0f), 1.0f);
  EXPECT_EQ(dropout_rescale(0.5f), 2.0f);
  EXPECT_EQ(dropout_rescale(1.0f), 0.0f);
}

TEST(Dropout, KeepsAllAtZeroAndNoneAtOne) {
  for (int64_t j = 0; j < 4096; ++j) {
    ASSERT_TRUE(dropout_keeps(1, 2, 0.0f, 0, 0, 0, j));
    ASSERT_FALSE(dropout_keeps(1, 2, 1.0f, 0, 0, 0, j));
  }
}

// Keep flags of 2 entries x 2 heads x 128 queries x 256 keys.
std::vector<int> kept(uint64_t seed, uint64_t offset, float p) {
  std::vector<int> flags;
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 128; ++i) {
        for (int64_t j = 0; j < 256; ++j)
          flags.push_back(dropout_keeps(seed, offset, p, b, h, i, j));
      }
    }
  }
  return flags;
}

// The deviation of the number of hits among `count` trials, in standard deviations.
double deviations(double hits, double count, double probability) {
  return std::abs(hits - count * probability) / std::sqrt(count * probability * (1 - probability));
}

TEST(Dropout, KeepsTheRightShare) {
  for (const float p : {0.05f, 0.1f, 0.25f, 0.5f, 0.9f}) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const std::vector<int> flags = kept(seed, 0, p);
      double hits = 0;
      for (const int flag : flags) hits += flag;
      EXPECT_LT(deviations(hits, static_cast<double>(flags.size()), 1 - p), 4.5)
          << p << ' ' << seed;
    }
  }
}

// If two sets of flags of probability 1/2 are independent, their agreement is a
// fair coin, too.
void expect_independent(const std::vector<int>& a, const std::vector<int>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  double agree = 0;
  for (size_t n = 0; n < a.size(); ++n) agree += a[n] == b[n];
  EXPECT_LT(deviations(agree, static_cast<double>(a.size()), 0.5), 4.5) << what;
}

TEST(Dropout, TheThresholdIsRounded) {
  EXPECT_EQ(dropout_threshold(0x1.8p-33F), 1U);
  EXPECT_EQ(dropout_threshold(0x1.8p-34F), 0U);
  EXPECT_EQ(dropout_threshold(0.5F), uint64_t{1} << 31);
  EXPECT_EQ(dropout_threshold(1), uint64_t{1} << 32);
}

TEST(Dropout, NeighboursAreIndependent) {
  const std::vector<int> flags = kept(11, 5, 0.5f);
  const auto shifted = [&](size_t by) {
    std::vector<int> out(flags);
    for (size_t n = 0; n < out.size(); ++n) out[n] = flags[(n + by) % flags.size()];
    return out;
  };
  expect_independent(flags, shifted(1), "next key");
  expect_independent(flags, shifted(4), "next group of keys");
  expect_independent(flags, shifted(256), "next query");
  expect_independent(flags, shifted(256 * 128), "next head");
  expect_independent(flags, shifted(256 * 128 * 2), "next entry");
  expect_independent(flags, kept(12, 5, 0.5f), "next seed");
  expect_independent(flags, kept(11, 6, 0.5f), "next offset");
  expect_independent(flags, kept(5, 11, 0.5f), "seed and offset exchanged");
  EXPECT_EQ(flags, kept(11, 5, 0.5f));
}

}  // namespace
}  // namespace flashcore
