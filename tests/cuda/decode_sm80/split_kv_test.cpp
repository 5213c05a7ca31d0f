// What of decode_sm80 needs no GPU: its table of tiles, how work is cut, and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/schedule.hpp"
#include "cuda/decode_sm80/split_kv/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::decode_sm80::split_kv {
namespace {

using testing::HasSubstr;

TEST(DecodeSm80Config, EveryHeadDimensionGetsTheCheapestTileThatHoldsIt) {
  for (const int bytes : {1, 2}) {
    for (const auto& [head_dim, wanted] : {std::pair{1, 64},
                                           {64, 64},
                                           {65, 128},
                                           {80, 128},
                                           {128, 128},
                                           {136, 256},
                                           {192, 256},
                                           {256, 256}}) {
      for (const auto& [qk, v] : {std::pair{head_dim, 1}, {1, head_dim}, {head_dim, head_dim}}) {
        const int config = choose_config(qk, v, bytes);
        ASSERT_GE(config, 0) << head_dim;
        EXPECT_EQ(kConfigs[static_cast<size_t>(config)].head_dim_qk, wanted) << head_dim;
        EXPECT_EQ(kConfigs[static_cast<size_t>(config)].head_dim_v, wanted) << head_dim;
        EXPECT_EQ(kConfigs[static_cast<size_t>(config)].kv_bytes, bytes);
      }
    }
    const Config& mla = kConfigs[static_cast<size_t>(choose_config(576, 512, bytes))];
    EXPECT_EQ(mla.head_dim_v, 512);
    EXPECT_GE(choose_config(264, 1, bytes), 0);
    EXPECT_GE(choose_config(1, 264, bytes), 0);
    EXPECT_EQ(choose_config(577, 64, bytes), -1);
    EXPECT_EQ(choose_config(64, 513, bytes), -1);
    for (const int head_dim : {64, 128, 256}) {
      const Config& config =
          kConfigs[static_cast<size_t>(choose_config(head_dim, head_dim, bytes, true))];
      EXPECT_TRUE(config.reads_trees) << head_dim;
      EXPECT_EQ(config.head_dim_qk, head_dim);
    }
    for (const auto& [head_dim, wanted] : {std::pair{1, 128}, {128, 128}, {136, 512}, {512, 512}}) {
      const int pairs = choose_config(head_dim, head_dim, bytes, head_dim == 1, true);
      ASSERT_GE(pairs, 0) << head_dim;
      EXPECT_TRUE(kConfigs[static_cast<size_t>(pairs)].reads_pairs) << head_dim;
      EXPECT_TRUE(kConfigs[static_cast<size_t>(pairs)].reads_trees) << "a problem may have both";
      EXPECT_EQ(kConfigs[static_cast<size_t>(pairs)].head_dim_v, wanted);
      const int tree = choose_config(head_dim, head_dim, bytes, true);
      EXPECT_FALSE(kConfigs[static_cast<size_t>(tree)].reads_pairs) << "gated as it is";
    }
    const int plain = choose_config(128, 128, bytes);
    EXPECT_FALSE(kConfigs[static_cast<size_t>(plain)].reads_trees) << "gated as it is";
  }
}

TEST(DecodeSm80Config, TwoBlocksShareAnSmWhereTheMemoryIsThere) {
  for (const Config& config : kConfigs) {
    EXPECT_EQ(blocks_per_sm(config, 99 * 1024), 1);
    EXPECT_EQ(blocks_per_sm(config, 163 * 1024), config.head_dim_v <= 256 ? 2 : 1);
    EXPECT_EQ(blocks_per_sm(config, 227 * 1024), 2);
    EXPECT_GE(config.all_ring_bytes(), 64 * 1024);
  }
}

// ---- how work is cut

TEST(DecodeSm80Schedule, PartsCoverAllKeysOnceAndNoneIsEmpty) {
  for (int most = 0; most < 40; ++most) {
    for (int granules = 1; granules < 700; ++granules) {
      const Parts parts = parts_of(granules, most);
      ASSERT_GE(parts.count * parts.granules, granules) << granules << ", at most " << most;
      ASSERT_LT((parts.count - 1) * parts.granules, granules) << granules << ", at most " << most;
      if (most > 0) {
        ASSERT_LE(parts.granules, most) << granules;
      } else {
        ASSERT_LE(parts.count, kMostOwnParts) << granules;
      }
    }
    EXPECT_EQ(parts_of(0, most).count, 0);
  }
}

TEST(DecodeSm80Schedule, AWorkspaceHasRoomForWhateverTheLengthsAre) {
  std::mt19937 random(17);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int n = 0; n < 3000; ++n) {
    const int batch = draw(1, 40), heads = draw(1, 8), group = draw(1, 8), blocks = draw(1, 264);
    const int seqlen_q = draw(1, 20), seqlen_kv = draw(1, 20000);
    const bool packed = draw(0, 1) == 1, invariant = draw(0, 1) == 1;
    const Band band{draw(0, 2) == 0 ? draw(0, 3000) : -1, draw(0, 1) == 0 ? 0 : -1};
    std::vector<EntryWork> works;
    int64_t rows = 0, total = 0;
    for (int b = 0; b < batch; ++b) {
      attention::Entry entry;
      entry.len_q = packed ? draw(0, seqlen_q) : seqlen_q;
      entry.len_kv = draw(0, 3) == 0 ? seqlen_kv : draw(0, seqlen_kv);
      entry.offset = entry.len_kv - entry.len_q;
      rows += entry.len_q;
      works.push_back(work_of(entry, band, group));
      total += int64_t{works.back().granules()} * works.back().row_tiles * heads;
    }
    const int64_t items = most_items(batch, heads, group, seqlen_q, packed ? rows : -1);
    const int64_t room = most_units(items, seqlen_kv, blocks, invariant);
    const int most = invariant ? 0 : unit_granules(total, blocks);
    int64_t units = 0;
    for (const EntryWork& work : works) units += units_of(work, heads, most);
    ASSERT_LE(units, room) << "problem " << n;
  }
}

TEST(DecodeSm80Schedule, BlocksAreBusyAlike) {
  // batch, tiles of 128 keys, heads: how full the last turn of 264 blocks is.
  for (const auto& [batch, granules, heads] :
       {std::array{1, 64, 8}, {1, 512, 8}, {16, 64, 8}, {40, 64, 8}, {64, 32, 8}, {128, 64, 8}}) {
    constexpr int kBlocks = 264;
    const Parts parts =
        parts_of(granules, unit_granules(int64_t{batch} * granules * heads, kBlocks));
    const int units = batch * heads * parts.count;
    const int turns = (units + kBlocks - 1) / kBlocks;
    const double busy = static_cast<double>(batch) * heads * granules /
                        (static_cast<double>(turns) * kBlocks * parts.granules);
    EXPECT_GT(busy, 0.9) << batch << " entries of " << granules << " granules";
  }
}

TEST(DecodeSm80Schedule, KeysThatNoQuerySeesAreNoWork) {
  attention::Entry entry;
  entry.len_q = 2;
  entry.len_kv = 1000;
  entry.offset = 998;
  EXPECT_EQ(work_of(entry, {-1, 0}, 4).begin, 0);
  EXPECT_EQ(work_of(entry, {-1, 0}, 4).end, 1000);
  EXPECT_EQ(work_of(entry, {100, 0}, 4).begin, 898);
  EXPECT_EQ(work_of(entry, {-1, 0}, 9).row_tiles, 2);
  entry.offset = -5;
  EXPECT_EQ(work_of(entry, {-1, 0}, 4).granules(), 0);
  entry.len_q = 0;
  EXPECT_EQ(work_of(entry, {-1, -1}, 4).row_tiles, 0);
}

// ---- what is refused

TEST(DecodeSm80Refusals, CountWhatHas32Bits) {
  const auto with = [](auto change) {
    ForwardProblem p;
    p.dtype = p.o_dtype = p.k_dtype = p.v_dtype = DType::bf16;
    p.batch = 4, p.heads_q = 32, p.heads_kv = 8;
    p.seqlen_q = 1, p.seqlen_kv = 8192;
    p.head_dim_qk = p.head_dim_v = 128;
    p.paging = {.present = true, .num_pages = 4096, .page_size = 16, .table_pages = 512};
    change(p);
    return tests::refusal(supports(), p, tests::on_gpu(80, 108, 163 * 1024));
  };
  EXPECT_EQ(with([](ForwardProblem&) {}), "");
  EXPECT_THAT(with([](ForwardProblem& p) { p.seqlen_kv = 1 << 30; }), HasSubstr("k: has"));
  EXPECT_THAT(with([](ForwardProblem& p) { p.batch = 1 << 27; }), HasSubstr("q: has"));
  EXPECT_THAT(with([](ForwardProblem& p) { p.batch = 1 << 22; }), HasSubstr("units of work"));
}

}  // namespace
}  // namespace flashcore::cuda::decode_sm80::split_kv
