// Entries of a batch from lengths in device memory, honest and hostile.
#include "cuda/attention/entry.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace flashcore::cuda::attention {
namespace {

constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

ForwardParams padded(int seqlen_q, int seqlen_kv) {
  ForwardParams p{};
  p.seqlen_q = seqlen_q;
  p.seqlen_kv = seqlen_kv;
  return p;
}

TEST(Entry, IsTheWholeTensorWithoutLengths) {
  const Entry entry = find_entry(padded(5, 7), 3);
  EXPECT_EQ(entry.q_row, 0);
  EXPECT_EQ(entry.kv_row, 0);
  EXPECT_EQ(entry.len_q, 5);
  EXPECT_EQ(entry.rows_q, 5);
  EXPECT_EQ(entry.len_kv, 7);
  EXPECT_EQ(entry.offset, 0);
}

TEST(Entry, HasRowsOfAPackedTensor) {
  const std::vector<int32_t> q = {0, 3, 3, 10}, kv = {0, 4, 9, 11};
  ForwardParams p = padded(7, 5);
  p.total_q = 10, p.total_kv = 11;
  p.cu_seqlens_q = {q.data(), 1};
  p.cu_seqlens_kv = {kv.data(), 1};
  p.diagonal = Diagonal::bottom_right;
  const Entry last = find_entry(p, 2);
  EXPECT_EQ(last.q_row, 3);
  EXPECT_EQ(last.len_q, 7);
  EXPECT_EQ(last.kv_row, 9);
  EXPECT_EQ(last.len_kv, 2);
  EXPECT_EQ(last.offset, -5);
  EXPECT_EQ(find_entry(p, 1).rows_q, 0);
}

TEST(Entry, KeepsRowsOfOPastTheQueriesInUse) {
  const std::vector<int32_t> used = {2, 9};
  ForwardParams p = padded(4, 4);
  p.seqlens_q = {used.data(), 1};
  EXPECT_EQ(find_entry(p, 0).len_q, 2);
  EXPECT_EQ(find_entry(p, 0).rows_q, 4);
  EXPECT_EQ(find_entry(p, 1).len_q, 4);
}

TEST(Entry, TakesDiagonalsOfItsOwn) {
  const std::vector<int32_t> offsets = {-3, 0, kMost};
  ForwardParams p = padded(4, 4);
  p.diagonal = Diagonal::given;
  p.causal_offset = 12;
  EXPECT_EQ(find_entry(p, 2).offset, 12);
  p.causal_offsets = {offsets.data(), 1};
  EXPECT_EQ(find_entry(p, 0).offset, -3);
  EXPECT_EQ(find_entry(p, 2).offset, kMost);
}

TEST(Entry, StepsThroughItsVectors) {
  const std::vector<int32_t> used = {1, -1, 2, -1, 3};
  ForwardParams p = padded(4, 4);
  p.seqlens_kv = {used.data(), 2};
  EXPECT_EQ(find_entry(p, 2).len_kv, 3);
  p.seqlens_kv.step = 0;
  EXPECT_EQ(find_entry(p, 2).len_kv, 1);
}

// Nothing that lengths say leads outside of the tensors.
TEST(Entry, StaysInsideWhateverTheLengthsAre) {
  std::mt19937 random(7);
  const auto draw = [&](int most) {
    switch (std::uniform_int_distribution(0, 3)(random)) {
      case 0:
        return kLeast;
      case 1:
        return kMost;
      default:
        return std::uniform_int_distribution<int32_t>(-most, 2 * most)(random);
    }
  };
  for (int i = 0; i < 5000; ++i) {
    ForwardParams p = padded(1 + i % 9, 1 + i % 7);
    p.total_q = i % 23, p.total_kv = i % 19;
    std::vector<int32_t> q, kv, used_q, used_kv;
    for (int k = 0; k < 4; ++k) {
      q.push_back(draw(25)), kv.push_back(draw(25));
      used_q.push_back(draw(10)), used_kv.push_back(draw(10));
    }
    p.cu_seqlens_q = {q.data(), 1}, p.cu_seqlens_kv = {kv.data(), 1};
    p.seqlens_q = {used_q.data(), 1}, p.seqlens_kv = {used_kv.data(), 1};
    p.diagonal = Diagonal::bottom_right;
    for (int b = 0; b < 3; ++b) {
      const Entry entry = find_entry(p, b);
      ASSERT_GE(entry.q_row, 0);
      ASSERT_GE(entry.kv_row, 0);
      ASSERT_GE(entry.len_q, 0);
      ASSERT_GE(entry.len_kv, 0);
      ASSERT_LE(entry.len_q, entry.rows_q);
      ASSERT_LE(entry.rows_q, p.seqlen_q);
      ASSERT_LE(entry.len_kv, p.seqlen_kv);
      ASSERT_LE(entry.q_row + entry.rows_q, p.total_q);
      ASSERT_LE(entry.kv_row + entry.len_kv, p.total_kv);
      ASSERT_EQ(entry.offset, entry.len_kv - entry.len_q);
    }
  }
}

}  // namespace
}  // namespace flashcore::cuda::attention
