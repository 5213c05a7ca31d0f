// What of forward_fp8_sm89 needs no GPU: its tiles, and which tile a block computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "cuda/forward_fp8_sm89/throughput/config.hpp"
#include "cuda/forward_fp8_sm89/throughput/task.hpp"

namespace flashcore::cuda::forward_fp8_sm89::throughput {
namespace {

TEST(ForwardFp8Sm89Config, TheFirstThatHoldsBothRows) {
  const auto head_dim = [](int64_t qk, int64_t v) {
    return kConfigs.at(static_cast<size_t>(choose_config(qk, v))).head_dim;
  };
  EXPECT_EQ(head_dim(16, 64), 64);
  EXPECT_EQ(head_dim(64, 80), 128);
  EXPECT_EQ(head_dim(96, 96), 128);
  EXPECT_EQ(head_dim(192, 128), 256);
  EXPECT_EQ(head_dim(256, 256), 256);
  for (const int64_t other : {0, 1, 8, 72, 100, 257, 272}) {
    EXPECT_EQ(choose_config(other, 64), -1) << other;
    EXPECT_EQ(choose_config(64, other), -1) << other;
  }
}

Params params_of(int seqlen_q, int seqlen_kv, int heads, int heads_kv) {
  Params p{};
  p.batch = 2;
  p.heads_q = heads, p.heads_kv = heads_kv;
  p.seqlen_q = seqlen_q, p.seqlen_kv = seqlen_kv;
  p.heads = static_cast<uint32_t>(heads);
  p.heads_per_kv_head = static_cast<uint32_t>(heads / heads_kv);
  p.order = {.batch_heads = static_cast<uint32_t>(2 * heads),
             .q_tiles = static_cast<uint32_t>((seqlen_q + kBlockQ - 1) / kBlockQ),
             .section_heads = 1,
             .longest_first = false};
  p.left = p.right = -1;
  p.varies = true;  // lengths and diagonals come from the sequences
  p.parts = 1;
  return p;
}

TEST(ForwardFp8Sm89Task, TakesTilesOfAHeadOneAfterAnother) {
  const Params p = params_of(300, 200, 6, 2);
  const Task task = find_task(p, (1 * 6 + 4) * 3 + 2, 64);
  EXPECT_EQ(task.batch, 1);
  EXPECT_EQ(task.head, 4);
  EXPECT_EQ(task.kv_head, 1);
  EXPECT_EQ(task.first_query, 2 * kBlockQ);
  EXPECT_EQ(task.tiles.begin, 0);
  EXPECT_EQ(task.tiles.end, 4);
}

TEST(ForwardFp8Sm89Task, RowsOutsideOfTheBandSeeNoKey) {
  Params p = params_of(300, 200, 1, 1);
  p.left = 10, p.right = 0;
  const Task task = find_task(p, 0, 64);
  EXPECT_EQ(seen_keys(task, 0).begin, 0);
  EXPECT_EQ(seen_keys(task, 0).end, 1);
  EXPECT_EQ(seen_keys(task, 50).begin, 40);
  EXPECT_EQ(seen_keys(task, 50).end, 51);
  const auto last = seen_keys(task, 299);
  EXPECT_LE(last.end, last.begin);
  const auto unused = seen_keys(task, 300);  // past the queries in use
  EXPECT_LE(unused.end, unused.begin);
}

// Every tile of every entry once, whatever slots that leaves empty.
TEST(ForwardFp8Sm89Task, PackedEntriesHaveTheirOwnTiles) {
  const std::array<int32_t, 4> begins = {0, 130, 131, 400};
  Params p = params_of(269, 269, 2, 2);
  p.batch = 3;
  p.total_q = p.total_kv = 400;
  p.cu_seqlens_q = p.cu_seqlens_kv = {begins.data(), 1};
  p.packed = true;
  const auto slots = static_cast<int>(attention::packed_slots(400, 3, kBlockQ));
  p.order.batch_heads = 2;
  p.order.q_tiles = static_cast<uint32_t>(slots);
  for (const bool longest_first : {false, true}) {
    p.order.longest_first = longest_first;
    std::vector<std::array<int, 3>> found;
    for (int i = 0; i < 2 * slots; ++i) {
      const Task task = find_task(p, static_cast<uint32_t>(i), 64);
      if (task.first_query >= task.rows_q) continue;
      found.push_back({task.batch, task.head, task.first_query / kBlockQ});
      EXPECT_EQ(task.q_row, begins.at(static_cast<size_t>(task.batch)));
      EXPECT_EQ(task.kv_row, task.q_row);
    }
    std::vector<std::array<int, 3>> wanted;
    for (int head = 0; head < 2; ++head) {
      for (const auto& [batch, tile] : {std::array{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}, {2, 2}}) {
        wanted.push_back({batch, head, tile});
      }
    }
    EXPECT_THAT(found, testing::UnorderedElementsAreArray(wanted));
  }
}

}  // namespace
}  // namespace flashcore::cuda::forward_fp8_sm89::throughput
