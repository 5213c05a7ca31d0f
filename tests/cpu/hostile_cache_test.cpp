// Runs the checks of tests/fuzz/cache_fuzz.cpp for a second, with random numbers.
#include "tests/fuzz/hostile_cache.hpp"

#include <gtest/gtest.h>

#include "bench/tensors/random.hpp"

namespace flashcore {
namespace {

TEST(HostileCache, GivesNumbersOrASentence) {
  for (uint64_t seed = 0; seed < 5000; ++seed) {
    bench::Random random(seed);
    const auto draw = [&] { return static_cast<uint32_t>(random.bits()); };
    const std::string wrong = tests::run_hostile_cache(draw);
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace flashcore
