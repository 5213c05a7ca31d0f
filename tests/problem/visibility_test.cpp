// Compares visible_keys and common_keys with the definition, pair by pair, over every small problem.
#include "problem/visibility.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace flashcore {
namespace {

// Step 4 of docs/semantics.md, for one pair.
bool sees(const Sequence& s, const Band& band, int64_t i, int64_t j) {
  if (i >= s.len_q || j < 0 || j >= s.len_kv) return false;
  if (band.right >= 0 && j > i + s.offset + band.right) return false;
  if (band.left >= 0 && j < i + s.offset - band.left) return false;
  return true;
}

std::set<int64_t> keys_of(const KeyRange& range) {
  std::set<int64_t> keys;
  for (int64_t j = range.begin; j < range.end; ++j) keys.insert(j);
  return keys;
}

template <class Check>
void for_each_small_problem(const Check& check) {
  for (int64_t len_q = 0; len_q <= 4; ++len_q) {
    for (int64_t len_kv = 0; len_kv <= 5; ++len_kv) {
      for (int64_t offset = -8; offset <= 8; ++offset) {
        for (int64_t left = -1; left <= 4; ++left) {
          for (int64_t right = -1; right <= 4; ++right) {
            Sequence s;
            s.len_q = len_q, s.rows_q = len_q + 2, s.len_kv = len_kv, s.offset = offset;
            check(s, Band{left, right});
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}
testing::Message text(const Sequence& s, const Band& band) {
  return testing::Message() << "len_q " << s.len_q << " len_kv " << s.len_kv << " offset "
                            << s.offset << " left " << band.left << " right " << band.right;
}

TEST(Visibility, OneQuery) {
  for_each_small_problem([](const Sequence& s, const Band& band) {
    SCOPED_TRACE(text(s, band));
    for (int64_t i = 0; i < s.rows_q; ++i) {
      const KeyRange range = visible_keys(s, band, i);
      std::set<int64_t> wanted;
      for (int64_t j = 0; j < s.len_kv; ++j) {
        if (sees(s, band, i, j)) wanted.insert(j);
      }
      ASSERT_EQ(keys_of(range), wanted) << "query " << i;
      ASSERT_EQ(range.empty(), wanted.empty());
      ASSERT_EQ(range.size(), static_cast<int64_t>(wanted.size()));
    }
  });
}

TEST(Visibility, RangeOfQueries) {
  for_each_small_problem([](const Sequence& s, const Band& band) {
    SCOPED_TRACE(text(s, band));
    for (int64_t first = 0; first <= s.rows_q; ++first) {
      for (int64_t last = first; last <= s.rows_q; ++last) {
        std::set<int64_t> any, all;
        for (int64_t j = 0; j < s.len_kv; ++j) {
          int64_t count = 0;
          for (int64_t i = first; i < last; ++i) count += sees(s, band, i, j) ? 1 : 0;
          if (count > 0) any.insert(j);
          if (count > 0 && count == last - first) all.insert(j);
        }
        ASSERT_EQ(keys_of(visible_keys(s, band, first, last)), any) << first << " to " << last;
        ASSERT_EQ(keys_of(common_keys(s, band, first, last)), all) << first << " to " << last;
      }
    }
  });
}

TEST(Visibility, LargestOffsetsAndWindowsDoNotOverflow) {
  constexpr int64_t kFar = int64_t{1} << 32;
  constexpr int64_t kLongest = (int64_t{1} << 31) - 1;
  Sequence s;
  s.len_q = s.rows_q = s.len_kv = kLongest;
  for (const int64_t offset : {-kFar, int64_t{0}, kFar}) {
    s.offset = offset;
    for (const int64_t left : {int64_t{-1}, int64_t{0}, kFar}) {
      for (const int64_t right : {int64_t{-1}, int64_t{0}, kFar}) {
        for (const int64_t i : {int64_t{0}, kLongest - 1}) {
          const KeyRange range = visible_keys(s, {left, right}, i);
          for (const int64_t j : {int64_t{0}, kLongest / 2, kLongest - 1}) {
            ASSERT_EQ(j >= range.begin && j < range.end, sees(s, {left, right}, i, j))
                << offset << ' ' << left << ' ' << right << ' ' << i << ' ' << j;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashcore
