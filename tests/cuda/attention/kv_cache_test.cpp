// Caches as kernels see them against src/problem: random caches, and tables and lengths that are none.
#include "cuda/attention/kv_cache.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "problem/key_places.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::attention {
namespace {

int32_t load(const int32_t* number) { return *number; }

Diagonal diagonal(Alignment alignment) {
  if (alignment == Alignment::top_left) return Diagonal::top_left;
  return alignment == Alignment::given ? Diagonal::given : Diagonal::bottom_right;
}

EntryVector vector_of(const VectorInput& input, const int32_t* data) {
  return {input.present ? data : nullptr, input.batch};
}

ForwardParams params_of(const ForwardProblem& p, const Arguments& args) {
  ForwardParams params{};
  params.batch = static_cast<int>(p.batch);
  params.seqlen_q = static_cast<int>(p.seqlen_q);
  params.seqlen_kv = static_cast<int>(p.seqlen_kv);
  params.total_q = static_cast<int>(p.total_q);
  params.total_kv = static_cast<int>(p.total_kv);
  params.cu_seqlens_q = vector_of(p.cu_seqlens_q, args.cu_seqlens_q);
  params.cu_seqlens_kv = vector_of(p.cu_seqlens_kv, args.cu_seqlens_kv);
  params.seqlens_q = vector_of(p.seqlens_q, args.seqlens_q);
  params.seqlens_kv = vector_of(p.seqlens_kv, args.seqlens_kv);
  params.causal_offsets = vector_of(p.causal_offsets, args.causal_offsets);
  params.diagonal = diagonal(p.alignment);
  params.causal_offset = p.causal_offset;
  return params;
}

KvCacheParams cache_of(const ForwardProblem& p, const Arguments& args) {
  KvCacheParams cache{};
  const Paging& paging = p.paging;
  if (paging.present) cache.pages = paging.flat ? args.kv_indices : args.page_table;
  cache.table_batch = paging.flat ? 0 : paging.table_batch;
  cache.table_page = paging.table_page;
  cache.flat = paging.flat;
  cache.table_pages = static_cast<int>(paging.table_pages);
  cache.num_pages = static_cast<int>(paging.num_pages);
  cache.page_size = static_cast<int>(paging.page_size);
  cache.by_page_size = divisor(static_cast<uint32_t>(std::max<int64_t>(paging.page_size, 1)));
  cache.indptr = vector_of(p.kv_indptr, args.kv_indptr);
  cache.last_page_len = vector_of(p.kv_last_page_len, args.kv_last_page_len);
  cache.leftpad = vector_of(p.cache_leftpad, args.cache_leftpad);
  return cache;
}

// That all keys of an entry that some query sees lie where the host's code finds them.
void expect_same_places(const ForwardProblem& p, const Arguments& args, int b, uint64_t seed) {
  const Sequence wanted = sequence_of(p, args, b);
  const KvCacheParams cache = cache_of(p, args);
  const CachedEntry found = find_cached_entry(params_of(p, args), cache, b);
  ASSERT_EQ(found.entry.q_row, wanted.q_begin) << "seed " << seed << ", entry " << b;
  ASSERT_EQ(found.entry.len_q, wanted.len_q) << "seed " << seed << ", entry " << b;
  ASSERT_EQ(found.entry.rows_q, wanted.rows_q) << "seed " << seed << ", entry " << b;
  ASSERT_EQ(found.entry.len_kv, wanted.len_kv) << "seed " << seed << ", entry " << b;
  ASSERT_EQ(found.entry.offset, wanted.offset) << "seed " << seed << ", entry " << b;
  const KeyRange seen = visible_keys(wanted, p.band, 0, wanted.len_q);
  const KeyPlaces places(p, args, wanted, b);
  for (int64_t key = seen.begin; key < seen.end; ++key) {
    const KeyPlace place = places.of(key);
    const CachedKey at = find_cached_key(cache, found, b, static_cast<int>(key), load);
    ASSERT_EQ(at.lead, place.lead) << "seed " << seed << ", entry " << b << ", key " << key;
    ASSERT_EQ(at.row, place.row) << "seed " << seed << ", entry " << b << ", key " << key;
    ASSERT_EQ(at.scale_row, place.scale_row) << "seed " << seed << ", key " << key;
  }
}

TEST(KvCache, KeysLieWhereTheHostFindsThem) {
  bench::RandomSpace space;
  space.caches = true;
  space.largest_seqlen = 60;
  space.largest_head_dim = 16;
  int paged = 0, flat = 0, padded = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    bench::HostProblem host = bench::random_problem(seed, space);
    const Result<ForwardProblem> p = resolve(host.problem);
    ASSERT_TRUE(p.ok()) << p.status().message();
    const Arguments args = host.arguments();
    paged += p->paging.present && !p->paging.flat ? 1 : 0;
    flat += p->paging.flat ? 1 : 0;
    padded += p->cache_leftpad.present ? 1 : 0;
    for (int b = 0; b < p->batch; ++b) expect_same_places(*p, args, b, seed);
  }
  EXPECT_GT(paged, 30);
  EXPECT_GT(flat, 20);
  EXPECT_GT(padded, 20);
}

// Whatever the lists say, pages and rows are inside of the table and of K and V.
TEST(KvCache, HostileListsAreClamped) {
  constexpr int kTable = 7, kPages = 5, kPageSize = 3, kBatch = 4;
  std::mt19937 random(5);
  const auto number = [&]() -> int32_t {
    switch (random() % 5) {
      case 0:
        return std::numeric_limits<int32_t>::min();
      case 1:
        return std::numeric_limits<int32_t>::max();
      default:
        return static_cast<int32_t>(random() % 16) - 4;
    }
  };
  for (int n = 0; n < 5000; ++n) {
    std::vector<int32_t> indptr(kBatch + 1), last(kBatch), pad(kBatch), used(kBatch), list(kTable);
    for (auto* const all : {&indptr, &last, &pad, &used, &list}) {
      for (int32_t& one : *all) one = number();
    }
    ForwardParams p{};
    p.seqlen_q = 2;
    p.seqlen_kv = kTable * kPageSize;
    p.seqlens_kv = {used.data(), 1};
    KvCacheParams cache{};
    cache.pages = list.data();
    cache.table_page = 1;
    cache.flat = true;
    cache.table_pages = kTable;
    cache.num_pages = kPages;
    cache.page_size = kPageSize;
    cache.by_page_size = divisor(kPageSize);
    cache.indptr = {indptr.data(), 1};
    cache.last_page_len = {last.data(), 1};
    cache.leftpad = {pad.data(), 1};
    for (int b = 0; b < kBatch; ++b) {
      const CachedEntry entry = find_cached_entry(p, cache, b);
      ASSERT_GE(entry.entry.len_kv, 0);
      ASSERT_LE(entry.entry.kv_row + entry.entry.len_kv, p.seqlen_kv);
      for (int key = 0; key < entry.entry.len_kv; ++key) {
        const CachedKey at = find_cached_key(cache, entry, b, key, [&](const int32_t* place) {
          EXPECT_GE(place - list.data(), 0);
          EXPECT_LT(place - list.data(), kTable);
          return *place;
        });
        ASSERT_TRUE(at.lead >= 0 && at.lead < kPages) << at.lead;
        ASSERT_TRUE(at.row >= 0 && at.row < kPageSize) << at.row;
      }
    }
  }
}

}  // namespace
}  // namespace flashcore::cuda::attention
