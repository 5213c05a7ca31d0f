#include "bench/cases/serving_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace flashcore::bench {
namespace {

std::string keys_text(int64_t keys) {
  return keys % 1024 == 0 ? fmt::format("{}k", keys / 1024) : fmt::format("{}", keys);
}

// Adds cases to a list, in a smaller form if `quick`.
class CacheCases {
 public:
  explicit CacheCases(bool quick) : divisor_(quick ? 8 : 1) {}

  Case& add(int64_t batch, int64_t keys, int64_t heads_kv) {
    const int64_t entries = std::max<int64_t>(batch / divisor_, 1), rows = keys / divisor_;
    return cases_.emplace_back(
        Case{.name = fmt::format("b{}/{}/hkv{}", entries, keys_text(rows), heads_kv),
             .dtype = DType::bf16,
             .batch = entries,
             .heads_q = 32,
             .heads_kv = heads_kv,
             .seqlen_q = 1,
             .seqlen_kv = rows,
             .head_dim = 128});
  }

  Case& add_paged(int64_t batch, int64_t keys, int64_t heads_kv, int64_t page_size) {
    Case& one = add(batch, keys, heads_kv);
    one.page_size = page_size;
    if (page_size > 0) one.name += fmt::format("/page{}", page_size);
    return one;
  }

  Case& copy(Case one) { return cases_.emplace_back(std::move(one)); }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  int64_t divisor_;
  std::vector<Case> cases_;
};

// tools/launches/standard_cases.cpp has these: another case would make every measurement stale.
std::vector<Case> decode(bool quick) {
  CacheCases cases(quick);
  for (const int64_t heads_kv : {8, 32}) {
    for (const auto& [batch, keys] :
         {std::pair<int64_t, int64_t>{1, 8192}, {1, 65536}, {16, 8192}, {64, 4096}, {128, 8192}}) {
      (void)cases.add(batch, keys, heads_kv);
    }
  }
  return cases.take();
}

// A page size of 0 is the cache in one piece, the baseline of the others.
std::vector<Case> paged(bool quick) {
  CacheCases cases(quick);
  for (const auto& [batch, keys] :
       {std::pair<int64_t, int64_t>{1, 8192}, {1, 65536}, {16, 8192}, {64, 4096}}) {
    for (const int64_t page : {0, 64, 16, 1}) (void)cases.add_paged(batch, keys, 8, page);
  }
  for (const int64_t page : {0, 64}) {
    (void)cases.add_paged(16, 8192, 1, page);
    for (const int64_t batch : {1, 16}) {
      Case& one = cases.add_paged(batch, 8192, 8, page);
      one.kv_dtype = DType::f8e4m3;
      one.name += "/f8e4m3";
    }
  }
  return cases.take();
}

std::vector<Case> ragged(bool quick) {
  CacheCases cases(quick);
  for (const int64_t page : {0, 64, 16}) {
    Case& one = cases.add_paged(64, 8192, 8, page);
    one.ragged = true;
    one.name += "/ragged";
  }
  return cases.take();
}

std::vector<Case> rotated(bool quick) {
  CacheCases cases(quick);
  for (const auto& [batch, keys, page] : {std::tuple<int64_t, int64_t, int64_t>{1, 8192, 0},
                                          {1, 65536, 0},
                                          {16, 8192, 0},
                                          {16, 8192, 64},
                                          {16, 8192, 16}}) {
    (void)cases.add_paged(batch, keys, 8, page);
  }
  for (const int64_t batch : {1, 16}) {
    Case& one = cases.add_paged(batch, 8192, 8, 0);
    one.kv_dtype = DType::f8e4m3;
    one.name += "/f8e4m3";
  }
  std::vector<Case> all = cases.take();
  for (Case& one : all) {
    one.rotated = true;
    one.name += "/rotated";
  }
  return all;
}

// Query i of n sees all keys except the last n - 1 - i, like the last tokens of a draft, or, with a
// tree mask, its ancestors among the last n.
std::vector<Case> speculative(bool quick) {
  CacheCases cases(quick);
  for (const int64_t page : {0, 64}) {
    for (const int64_t queries : {1, 2, 4, 8, 16}) {
      Case& one = cases.add_paged(16, 8192, 8, page);
      one.seqlen_q = queries;
      one.causal = true;
      one.name += fmt::format("/q{}", queries);
      if (queries < 4) continue;
      Case& tree = cases.copy(one);
      tree.causal = false;
      tree.tree = true;
      tree.name += "/tree";
    }
  }
  return cases.take();
}

// A chunk of a prompt after the keys of earlier chunks; in one piece, and in pages. The small form
// has as many entries, and an eighth of the queries and of the keys.
std::vector<Case> prefill(bool quick) {
  CacheCases cases(quick);
  for (const int64_t batch : {1, 4}) {
    for (const int64_t keys : {8192, 32768}) {
      for (const int64_t queries : {512, 2048}) {
        for (const int64_t page : {0, 128, 64, 16}) {
          Case& one = cases.add_paged(batch, keys, 8, page);
          one.batch = batch;
          one.seqlen_q = quick ? queries / 8 : queries;
          one.causal = true;
          one.name = fmt::format("b{}/{}/hkv8/q{}", batch, keys_text(one.seqlen_kv), one.seqlen_q);
          if (page > 0) one.name += fmt::format("/page{}", page);
        }
      }
    }
  }
  return cases.take();
}

// The shapes of DeepSeek's models: 128 heads, and 64 and 16 of them where others have the rest.
std::vector<Case> mla(bool quick) {
  CacheCases cases(quick);
  const auto add = [&](int64_t batch, int64_t keys, int64_t heads, int64_t queries) -> Case& {
    Case& one = cases.add_paged(batch, keys, 1, 64);
    one.heads_q = heads;
    one.head_dim = 576;
    one.head_dim_v = 512;
    one.seqlen_q = queries;
    one.latent = one.causal = one.rotated = true;
    one.name = fmt::format("b{}/{}/h{}", one.batch, keys_text(one.seqlen_kv), heads);
    if (queries > 1) one.name += fmt::format("/q{}", queries);
    return one;
  };
  for (const auto& [batch, keys] : {std::pair<int64_t, int64_t>{1, 1024},
                                    {1, 8192},
                                    {1, 32768},
                                    {16, 8192},
                                    {64, 1024},
                                    {64, 8192},
                                    {128, 8192}}) {
    (void)add(batch, keys, 128, 1);
  }
  for (const int64_t heads : {64, 16}) {
    for (const int64_t batch : {16, 64, 128}) (void)add(batch, 8192, heads, 1);
  }
  (void)add(64, 8192, 128, 2);
  Case& ragged = add(64, 16384, 128, 1);
  ragged.ragged = true;
  ragged.name += "/ragged";
  return cases.take();
}

}  // namespace

std::optional<std::vector<Case>> serving_cases(std::string_view name, bool quick) {
  if (name == "decode") return decode(quick);
  if (name == "paged") return paged(quick);
  if (name == "ragged") return ragged(quick);
  if (name == "rotated") return rotated(quick);
  if (name == "speculative") return speculative(quick);
  if (name == "prefill") return prefill(quick);
  if (name == "mla") return mla(quick);
  return std::nullopt;
}

}  // namespace flashcore::bench
