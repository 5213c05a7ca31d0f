// What of mla_sm90 needs no GPU: how work is cut, and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/mla_sm90/latent/schedule.hpp"
#include "cuda/mla_sm90/latent/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::mla_sm90::latent {
namespace {

using testing::HasSubstr;

Cutting cutting_of(const std::vector<int>& tiles, int shares, bool own = false) {
  int all = 0, items = 0, longest = 0;
  for (const int one : tiles) {
    all += own ? own_parts(one) : one, items += one > 0 ? 1 : 0;
    longest = std::max(longest, one);
  }
  return own ? own_cutting(all, shares) : cutting(all, items, longest, shares);
}

// Every tile of every item is in one share's part, and what the second kernel reads of an
// item are the parts' slots in order. Returns the tiles and ends of the busiest share.
int check_cuts(const std::vector<int>& tiles, int shares, bool own = false) {
  const Cutting cut = cutting_of(tiles, shares, own);
  const auto items = static_cast<int64_t>(tiles.size());
  const int longest = *std::max_element(tiles.begin(), tiles.end());
  std::vector<int> busy(static_cast<size_t>(shares)), units(static_cast<size_t>(shares));
  std::set<int> slots;
  int first = 0;
  for (const int count : tiles) {
    const Parts parts = parts_of(cut, first, count);
    int done = 0, found = 0;
    for (int share = 0; share < shares; ++share) {
      const int of_share = part_count(cut, first, count, share);
      EXPECT_TRUE(own || of_share <= 1);
      units[static_cast<size_t>(share)] += of_share;
      EXPECT_TRUE(!own || part_of(cut, first, count, share, of_share).empty());
      for (int nth = 0; nth < of_share; ++nth) {
        const Part part = part_of(cut, first, count, share, nth);
        EXPECT_FALSE(part.empty());
        EXPECT_EQ(part.begin, done);
        done = part.end;
        busy[static_cast<size_t>(share)] += part.end - part.begin + kEndTiles;
        const bool whole = part.begin == 0 && part.end == count;
        EXPECT_EQ(part.slot < 0, whole);
        if (!whole) {
          EXPECT_EQ(part.slot, parts.slot(found));
          EXPECT_LT(part.slot, slot_count(items, longest, shares, own));
          EXPECT_TRUE(slots.insert(part.slot).second) << "slot " << part.slot;
        }
        ++found;
      }
    }
    EXPECT_EQ(done, count);
    EXPECT_EQ(found, parts.count);
    first += item_cost(cut, count);
  }
  EXPECT_LE(*std::max_element(units.begin(), units.end()), most_units(items, longest, shares, own));
  return *std::max_element(busy.begin(), busy.end());
}

TEST(MlaSm90Schedule, EveryTileIsInOnePart) {
  std::mt19937 random(1);
  std::set<Layout> seen;
  for (int n = 0; n < 1000 && !testing::Test::HasFailure(); ++n) {
    const int batch = std::uniform_int_distribution<>(1, n % 3 == 0 ? 5 : 300)(random);
    const int longest = std::uniform_int_distribution<>(1, n % 2 == 0 ? 6 : 500)(random);
    const int shares = std::uniform_int_distribution<>(1, 132)(random);
    const bool equal = n % 5 == 0;
    std::vector<int> tiles;
    for (int b = 0; b < batch; ++b) {
      tiles.push_back(equal ? longest : std::uniform_int_distribution<>(0, longest)(random));
    }
    for (const bool own : {false, true}) {
      seen.insert(cutting_of(tiles, shares, own).layout);
      check_cuts(tiles, shares, own);
    }
  }
  EXPECT_EQ(seen.size(), 4U);
}

// With batch_invariant, where an item is cut does not depend on the others.
TEST(MlaSm90Schedule, OwnPartsDependOnTheirItemAlone) {
  for (int tiles = 1; tiles <= 3000; ++tiles) {
    const int parts = own_parts(tiles), each = own_part_tiles(tiles);
    EXPECT_LE(parts, most_own_parts(tiles)) << tiles;
    EXPECT_LE(most_own_parts(tiles), most_own_parts(tiles + 1)) << tiles;
    EXPECT_LE(parts, each / 4 + 1) << tiles;
  }
  EXPECT_EQ(own_parts(0), 0);
  EXPECT_EQ(own_parts(16), 1);
  EXPECT_EQ(own_parts(128), 4);    // 8k keys
  EXPECT_EQ(own_parts(2048), 16);  // 128k keys
  for (const int tiles : {1, 33, 128, 500}) {
    for (const auto& [before, shares] : {std::pair{0, 66}, std::pair{700, 66}, std::pair{9, 4}}) {
      const Cutting cut = own_cutting(1000, shares);
      std::vector<int> ends;
      for (int share = 0; share < shares; ++share) {
        for (int nth = 0; nth < part_count(cut, before, tiles, share); ++nth) {
          ends.push_back(part_of(cut, before, tiles, share, nth).end);
        }
      }
      ASSERT_EQ(ends.size(), static_cast<size_t>(own_parts(tiles)));
      for (int part = 0; part < own_parts(tiles); ++part) {
        EXPECT_EQ(ends[static_cast<size_t>(part)], (part + 1) * tiles / own_parts(tiles));
      }
    }
  }
}

TEST(MlaSm90Schedule, NothingToDo) {
  check_cuts({0, 0, 0}, 7);
  EXPECT_EQ(parts_of(cutting_of({0, 4}, 7), 0, 0).count, 0);
}

TEST(MlaSm90Schedule, TakesTheCheapestLayout) {
  // Entries of 8k keys on an H200's 66 blocks for each of two tiles of heads.
  EXPECT_EQ(cutting_of(std::vector<int>(64, 128), 66).layout, Layout::whole);
  EXPECT_EQ(cutting_of(std::vector<int>(16, 128), 66).layout, Layout::equal);
  EXPECT_EQ(cutting_of(std::vector<int>(1, 128), 66).layout, Layout::equal);
  EXPECT_EQ(check_cuts(std::vector<int>(16, 128), 66), 32 + kEndTiles);
  // One entry: 64 blocks have two tiles each, and so would 66.
  EXPECT_EQ(cutting_of({128}, 66).parts, 64);
  EXPECT_EQ(check_cuts({128}, 66), 2 + kEndTiles);
  std::vector<int> ragged;
  for (int b = 0; b < 64; ++b) ragged.push_back(2 + 4 * b);
  EXPECT_EQ(cutting_of(ragged, 66).layout, Layout::even);
  EXPECT_LE(check_cuts(ragged, 66), 128 + 3);
}

// ---- refusals

// 16 entries of 8k keys in pages of 64, 128 heads.
ForwardProblem latent() {
  ForwardProblem p;
  p.dtype = p.k_dtype = p.v_dtype = p.o_dtype = DType::bf16;
  p.batch = 16;
  p.heads_q = 128;
  p.heads_kv = p.seqlen_q = 1;
  p.seqlen_kv = 8192;
  p.head_dim_qk = 576;
  p.head_dim_v = 512;
  p.k = p.v = {64 * 576, 64 * 576, 576};
  p.paging = {.present = true, .num_pages = 2048, .page_size = 64};
  p.softmax_scale = 0.07F;
  return p;
}

std::string refusal(const ForwardProblem& p, const PlanContext& context = tests::on_gpu(90)) {
  return supports().extra(p, context);
}

TEST(MlaSm90Refusals, SayWhatIsWanted) {
  EXPECT_EQ(refusal(latent()), "");
  ForwardProblem p = latent();
  p.v.row = 512;
  EXPECT_THAT(refusal(p), HasSubstr("v: row stride is 512, wanted k's 576"));
  p = latent();
  p.paging.page_size = 12;
  EXPECT_EQ(refusal(p), "k: page size is 12, wanted a multiple of 8");
  p = latent();
  p.paging.num_pages = 0;
  EXPECT_EQ(refusal(p), "k: has 0 pages, wanted 1 or more");
  p = latent();
  p.seqlen_q = 65;
  EXPECT_THAT(refusal(p), HasSubstr("q: has 130 tiles of 64 heads"));
}

TEST(MlaSm90Plan, OneLaunchWhereNoEntryIsCut) {
  ForwardProblem p = latent();
  p.paging.present = false;
  p.batch = 66;
  EXPECT_FALSE(has_joins(p, tests::on_gpu(90)));
  p.batch = 16;
  EXPECT_TRUE(has_joins(p, tests::on_gpu(90)));
  EXPECT_EQ(share_count(p, tests::on_gpu(90)), 66);
  p.batch = 66;
  p.seqlens_kv.present = true;
  EXPECT_TRUE(has_joins(p, tests::on_gpu(90)));
  p.seqlen_q = 0;  // max_seqlen_q of a packed batch
  EXPECT_GE(share_count(p, tests::on_gpu(90)), 1);
  p = latent();
  p.paging.present = false;
  p.batch = 66;
  PlanContext invariant = tests::on_gpu(90);
  invariant.batch_invariant = true;
  EXPECT_TRUE(has_joins(p, invariant));
  p.seqlen_kv = 1024;
  EXPECT_FALSE(has_joins(p, invariant));
  p.cache_leftpad.present = true;
  EXPECT_TRUE(has_joins(p, invariant));
}

}  // namespace
}  // namespace flashcore::cuda::mla_sm90::latent
