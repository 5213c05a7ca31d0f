// What of decode_sm90 needs no GPU: its table of tiles, how work is cut, and its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/decode_sm90/stream_kv/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::decode_sm90::stream_kv {
namespace {

using testing::HasSubstr;

TEST(DecodeSm90Config, EveryProblemGetsTheSmallestTileThatHoldsIt) {
  for (const auto& [bytes, e5m2] : {std::pair{2, false}, {1, false}, {1, true}}) {
    for (const auto& [head_dim, wanted] :
         {std::pair{1, 64}, {64, 64}, {65, 128}, {80, 128}, {128, 128}}) {
      for (const auto& [rows, tiles] : {std::pair{1, 1}, {8, 1}, {9, 2}, {16, 2}, {100, 2}}) {
        const int config = choose_config(head_dim, head_dim, bytes, e5m2, rows);
        ASSERT_GE(config, 0);
        const Config& found = kConfigs[static_cast<size_t>(config)];
        EXPECT_EQ(found.head_dim, wanted);
        EXPECT_EQ(found.kv_bytes, bytes);
        EXPECT_EQ(found.e5m2, e5m2);
        EXPECT_EQ(found.row_tiles, tiles);
        EXPECT_EQ(found.ring_bytes(), 128 * 1024);
      }
    }
    EXPECT_EQ(choose_config(129, 64, bytes, e5m2, 1), -1);
    EXPECT_EQ(choose_config(64, 129, bytes, e5m2, 1), -1);
  }
}

// ---- how work is cut

struct Item {
  int first, granules;
};

// Items one after the other in a line, an end after each.
std::vector<Item> in_line(const std::vector<int>& granules, int end) {
  std::vector<Item> items;
  int first = 0;
  for (const int count : granules) {
    items.push_back({first, count});
    first += item_cost(count, end);
  }
  return items;
}

// Every granule of every item in exactly one part, and no slot twice; parts as blocks find them.
void check_cuts(const std::vector<int>& granules, int end, int shares, int64_t seqlen_kv,
                bool invariant) {
  const std::vector<Item> items = in_line(granules, end);
  const int total = items.back().first + item_cost(items.back().granules, end);
  const int each = (total + shares - 1) / shares;
  std::set<int> slots;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.granules == 0) continue;
    const Cut cut{item.first, item.granules, static_cast<int>(i),
                  invariant ? own_part(item.granules) : each,
                  invariant ? most_own_parts(seqlen_kv) : 0};
    const int parts = cut.parts();
    ASSERT_GE(parts, 1);
    if (invariant) {
      ASSERT_LE(parts, kMostOwnParts);
      ASSERT_GE(parts * cut.each, item.granules);
      ASSERT_LT((parts - 1) * cut.each, item.granules);
    } else {
      ASSERT_EQ(cut.first_share(), item.first / each);
      ASSERT_EQ(cut.first_share() + parts - 1, (item.first + item.granules - 1) / each);
    }
    if (parts == 1) continue;
    for (int part = 0; part < parts; ++part) {
      const int slot = cut.slots().at(part);
      ASSERT_TRUE(slots.insert(slot).second) << "item " << i << ", part " << part;
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, most_slots(static_cast<int64_t>(items.size()), seqlen_kv, shares, invariant));
      // As a block knows it: by where the part begins, and its share.
      const int begin = invariant   ? part * cut.each
                        : part == 0 ? 0
                                    : (cut.first_share() + part) * each - item.first;
      ASSERT_EQ(slot, cut.slot_at(begin, cut.first_share() + part));
    }
  }
}

TEST(DecodeSm90Schedule, PartsAreWholeAndHavePlacesOfTheirOwn) {
  std::mt19937 random(5);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int n = 0; n < 300; ++n) {
    const int entries = draw(1, 30), heads = draw(1, 6), most = draw(0, 5) == 0 ? 600 : 40;
    std::vector<int> items;
    for (int b = 0; b < entries; ++b) {
      items.insert(items.end(), static_cast<size_t>(heads), draw(0, 3) == 0 ? 0 : draw(1, most));
    }
    if (std::all_of(items.begin(), items.end(), [](int granules) { return granules == 0; }))
      continue;
    const int64_t capacity = int64_t{most} * kGranule;
    const auto chosen = static_cast<int>(share_count(entries * heads, most, 132, 56));
    for (const int shares : {1, 7, chosen, 132}) {
      for (const int end : {0, 1, 2}) {
        check_cuts(items, end, shares, capacity, false);
        check_cuts(items, end, shares, capacity, true);
      }
    }
  }
}

// In a batch of many short sequences, no share has many more of them than others have keys.
TEST(DecodeSm90Schedule, EndsOfShortItemsCount) {
  std::vector<int> granules;
  for (int b = 0; b < 64; ++b) granules.insert(granules.end(), 8, 1 + b);
  constexpr int kShares = 132;
  const auto longest = [&](int end) {
    const std::vector<Item> items = in_line(granules, end);
    const int total = items.back().first + item_cost(items.back().granules, end);
    const int each = (total + kShares - 1) / kShares;
    int most = 0;
    for (int share = 0; share < kShares; ++share) {
      int places = 0;  // granules, and one for each item's end
      for (const Item& item : items) {
        const int count = std::min(item.first + item.granules, (share + 1) * each) -
                          std::max(item.first, share * each);
        if (count > 0) places += count + 1;
      }
      most = std::max(most, places);
    }
    return most;
  };
  EXPECT_GT(longest(0), 160);
  EXPECT_LT(longest(1), 135);
}

// ---- how many shares there are

constexpr int kAllFill = std::numeric_limits<int>::max();
static_assert(share_count(128, 64, 132, 56) == 128);  // an item each
static_assert(share_count(512, 32, 132, kAllFill) == 128);
static_assert(share_count(160, 12, 132, 56) == 80);  // two each: memory is no slower
static_assert(share_count(160, 12, 132, kAllFill) == 132);
static_assert(share_count(56, 40, 132, 56) == 56 && share_count(56, 600, 132, 56) == 132);
static_assert(share_count(8, 64, 132, 56) == 132);   // eight blocks would read alone
static_assert(share_count(391, 9, 132, 56) == 132);  // 17 times 23
static_assert(share_count(3, 40, 132, 56) == 120);   // no more than granules
static_assert(share_count(32, 3, 132, 56) == 32 && share_count(16, 5, 132, 56) == 80);
static_assert(share_count(0, 5, 132, 56) == 1 && share_count(5, 0, 132, 56) == 1);

TEST(DecodeSm90Shares, AreAsManyAsBlocksOrHaveWholeItems) {
  std::mt19937 random(43);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int fewer = 0;
  for (int n = 0; n < 20000; ++n) {
    const int items = draw(1, draw(0, 1) == 0 ? 200 : 3000), granules = draw(1, 600),
              blocks = draw(1, 150), filling = draw(0, 1) == 0 ? 56 : kAllFill;
    const int64_t shares = share_count(items, granules, blocks, filling);
    const int64_t most = std::min<int64_t>(blocks, int64_t{items} * granules);
    ASSERT_GE(shares, 1);
    ASSERT_LE(shares, most);
    if (shares == most) continue;
    ASSERT_EQ(items % shares, 0);
    ++fewer;
    // As blocks find them: a share begins where an item does.
    ASSERT_EQ(divide_up(int64_t{items} * item_cost(granules, 1), shares),
              items / shares * item_cost(granules, 1));
    // No block has much more to do than with all of them, unless memory is what is waited for.
    const int64_t own = items / shares * (granules + 1),
                  even = divide_up(int64_t{items} * (granules + (items >= most ? 1 : 0)), most);
    const int64_t memory = divide_up(int64_t{items} * granules, std::min<int64_t>(filling, most));
    ASSERT_LE(100 * own, 104 * std::max(even, memory) + 300);
  }
  EXPECT_GT(fewer, 500);
}

TEST(DecodeSm90Schedule, PartsOfTheirOwnDependOnNothingElse) {
  EXPECT_EQ(own_part(1), kFewestOwnGranules);
  EXPECT_EQ(own_part(128), 8);
  EXPECT_EQ(own_part(129), 9);
  EXPECT_EQ(own_part(1024), 64);
}

TEST(DecodeSm90Schedule, AWorkspaceGrowsWithTheGridAlone) {
  EXPECT_EQ(most_slots(1000, 1 << 20, 132, false), 264);
  EXPECT_EQ(most_slots(16, 8192, 132, true), 16 * 8);
  EXPECT_EQ(most_slots(16, 1 << 20, 132, true), 16 * kMostOwnParts);
  EXPECT_EQ(most_slots(16, 0, 132, true), 16);
}

// ---- what is refused, and how keys are copied

ForwardProblem decode() {
  ForwardProblem p;
  p.dtype = p.o_dtype = DType::bf16;
  p.k_dtype = p.v_dtype = DType::bf16;
  p.batch = 4, p.heads_q = 32, p.heads_kv = 8;
  p.seqlen_q = 1, p.seqlen_kv = 8192;
  p.head_dim_qk = p.head_dim_v = 128;
  p.paging = {.present = true, .num_pages = 4096, .page_size = 16, .table_pages = 512};
  p.k = p.v = {.batch = 16 * 8 * 128, .head = 128, .row = 8 * 128};
  return p;
}

std::string refused(const ForwardProblem& p) { return tests::refusal(supports(), p); }

template <class Change>
ForwardProblem with(Change change) {
  ForwardProblem p = decode();
  change(p);
  return p;
}

TEST(DecodeSm90Refusals, NameTheArgument) {
  EXPECT_EQ(refused(decode()), "");
  EXPECT_EQ(refused(with([](ForwardProblem& p) {
              p.tree_mask.present = true;
              p.k_dtype = p.v_dtype = DType::f8e4m3;
            })),
            "tree_mask: is given with a k of f8e4m3, wanted a k of 16 bits");
  EXPECT_THAT(refused(with([](ForwardProblem& p) { p.batch = 2049; })),
              HasSubstr("q: batch is 2049, wanted at most 2048"));
  EXPECT_EQ(refused(with([](ForwardProblem& p) { p.seqlen_q = 64; })), "");
  EXPECT_THAT(refused(with([](ForwardProblem& p) { p.seqlen_q = 65; })),
              HasSubstr("q: has 260 rows of a key/value head, wanted at most 256"));
  EXPECT_THAT(refused(with([](ForwardProblem& p) {
                p.batch = 2048, p.heads_q = 1024, p.heads_kv = 256, p.seqlen_q = 64;
              })),
              HasSubstr("q: has 134217728 rows, 64 queries per sequence, wanted at most 67108864"));
  EXPECT_THAT(refused(with([](ForwardProblem& p) { p.seqlen_kv = 1 << 28, p.batch = 2000; })),
              HasSubstr("k: has"));
}

TEST(DecodeSm90Boxes, AreWhereTilesLieInPages) {
  EXPECT_TRUE(has_boxes(decode()));
  EXPECT_FALSE(has_boxes(with([](ForwardProblem& p) { p.paging.page_size = 24; })));
  // Tiles of fp8 keys are longer.
  EXPECT_FALSE(has_boxes(with([](ForwardProblem& p) { p.k_dtype = p.v_dtype = DType::f8e5m2; })));
  EXPECT_TRUE(has_boxes(with([](ForwardProblem& p) { p.head_dim_qk = p.head_dim_v = 80; })));
  // Panels of K that nothing would be copied to.
  EXPECT_FALSE(has_boxes(with([](ForwardProblem& p) { p.head_dim_qk = 64; })));
  EXPECT_FALSE(has_boxes(with([](ForwardProblem& p) { p.k.row = 8 * 128 + 4; })));
  EXPECT_FALSE(has_boxes(with([](ForwardProblem& p) { p.v.head = 0; })));
}

Shares shares(const ForwardProblem& p, bool batch_invariant = false) {
  PlanContext context;
  context.device.multiprocessors = 132;
  context.batch_invariant = batch_invariant;
  return shares_of(p, context);
}

TEST(DecodeSm90Shares, BlocksOfOneShareAreTilesOfRows) {
  EXPECT_EQ(shares(decode()).count, 132);
  const ForwardProblem many = with([](ForwardProblem& p) { p.seqlen_q = 8; });
  EXPECT_EQ(tile_count(many), 2);
  EXPECT_EQ(shares(many).count, 66);
  EXPECT_EQ(shares(with([](ForwardProblem& p) { p.batch = 1, p.seqlen_kv = 1280; })).count, 80);
}

// What is stored whole by the first kernel wants no second one; where lengths are known to the device
// alone, or items are cut by themselves, there is one.
TEST(DecodeSm90Shares, AreWholeWhereThatIsKnown) {
  const auto sixteen = [](auto&& change) {
    return with([&](ForwardProblem& p) {
      p.batch = 16;
      change(p);
    });
  };
  const Shares whole = shares(sixteen([](ForwardProblem&) {}));
  EXPECT_EQ(whole.count, 128);
  EXPECT_TRUE(whole.whole);
  EXPECT_TRUE(
      shares(sixteen([](ForwardProblem& p) { p.band = {.left = 1000, .right = 0}; })).whole);
  EXPECT_FALSE(shares(decode()).whole);
  for (const ForwardProblem& p :
       {sixteen([](ForwardProblem& p) { p.seqlens_kv.present = true; }),
        sixteen([](ForwardProblem& p) { p.seqlens_q.present = true; }),
        sixteen([](ForwardProblem& p) { p.causal_offsets.present = true; }),
        sixteen([](ForwardProblem& p) { p.packed = true; }),
        sixteen([](ForwardProblem& p) { p.cache_leftpad.present = true; }),
        sixteen([](ForwardProblem& p) { p.paging.flat = true; }),
        sixteen([](ForwardProblem& p) {  // no query sees a key
          p.alignment = Alignment::given;
          p.causal_offset = -5;
          p.band.right = 0;
        })}) {
    const Shares cut = shares(p);
    EXPECT_EQ(cut.count, 132);
    EXPECT_FALSE(cut.whole);
  }
  EXPECT_EQ(shares(sixteen([](ForwardProblem&) {}), true).count, 132);
  EXPECT_FALSE(shares(sixteen([](ForwardProblem&) {}), true).whole);
}

}  // namespace
}  // namespace flashcore::cuda::decode_sm90::stream_kv
