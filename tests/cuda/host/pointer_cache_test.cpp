// What a plan remembers of its runs' pointers: the right thing, made once, by any number of
// threads.
#include "cuda/host/pointer_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace flashcore::cuda::host {
namespace {

struct Made {
  std::array<uintptr_t, 16> words{};
};
using Cache = PointerCache<Made, 2>;

const void* pointer(uintptr_t value) { return reinterpret_cast<const void*>(value); }
Cache::Key key(uintptr_t value) { return {pointer(value), pointer(value + 1)}; }

// Fills `made` with `value`.
auto maker(uintptr_t value, std::atomic<int>& count) {
  return [value, &count](Made& made) {
    ++count;
    made.words.fill(value);
    return 0;
  };
}

TEST(PointerCache, MakesOnceAndRemembersTheLastFew) {
  Cache cache;
  std::atomic<int> count = 0;
  Made made;
  for (int round = 0; round < 3; ++round) {
    for (uintptr_t i = 0; i < Cache::kEntries; ++i) {
      ASSERT_EQ(cache.get(key(16 * i), made, maker(i, count), 0), 0);
      EXPECT_EQ(made.words[7], i);
    }
  }
  EXPECT_EQ(count, static_cast<int>(Cache::kEntries));
  // One more takes the place of the oldest.
  ASSERT_EQ(cache.get(key(1000), made, maker(1000, count), 0), 0);
  ASSERT_EQ(cache.get(key(16), made, maker(99, count), 0), 0);
  EXPECT_EQ(made.words[0], 1U) << "the second is still there";
  ASSERT_EQ(cache.get(key(0), made, maker(77, count), 0), 0);
  EXPECT_EQ(made.words[0], 77U) << "the first is not";
}

TEST(PointerCache, EveryPointerOfTheKeyCounts) {
  Cache cache;
  std::atomic<int> count = 0;
  Made made;
  ASSERT_EQ(cache.get({pointer(16), pointer(32)}, made, maker(1, count), 0), 0);
  ASSERT_EQ(cache.get({pointer(16), pointer(48)}, made, maker(2, count), 0), 0);
  EXPECT_EQ(made.words[0], 2U);
  ASSERT_EQ(cache.get({pointer(16), pointer(32)}, made, maker(3, count), 0), 0);
  EXPECT_EQ(made.words[0], 1U);
  // A cache that has nothing does not find null pointers in it.
  Cache empty;
  ASSERT_EQ(empty.get({nullptr, nullptr}, made, maker(4, count), 0), 0);
  EXPECT_EQ(made.words[0], 4U);
}

TEST(PointerCache, AnErrorIsReturnedAndNotRemembered) {
  Cache cache;
  std::atomic<int> count = 0;
  Made made;
  EXPECT_EQ(cache.get(
                key(16), made, [](Made&) { return 5; }, 0),
            5);
  EXPECT_EQ(cache.get(key(16), made, maker(3, count), 0), 0);
  EXPECT_EQ(count, 1);
}

TEST(PointerCache, ThreadsSeeWholeValues) {
  Cache cache;
  std::atomic<int> count = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (uintptr_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uintptr_t i = 0; i < 2000; ++i) {
        const uintptr_t value = (i + t) % 7;
        Made made;
        (void)cache.get(key(16 * value), made, maker(value, count), 0);
        for (const uintptr_t word : made.words) wrong += word == value ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace flashcore::cuda::host
