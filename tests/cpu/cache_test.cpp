// Keys and values in caches give the same bits as the same keys gathered into one piece, by code that
// knows only docs/semantics.md; everything that no row may see is NaN (bench/cases/random_cache.hpp).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases/random_cache.hpp"
#include "bench/cases/random_problem.hpp"
#include "kernel/kernel.hpp"
#include "problem/problem.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::CacheKeys;
using bench::CacheRow;
using bench::HostProblem;
using bench::HostTensor;
using testing::on_kernel, testing::run_on_host;

constexpr bench::RandomSpace kCaches{.largest_seqlen = 120,
                                     .largest_head_dim = 72,
                                     .more_outputs = true,
                                     .max_logit = true,
                                     .mixes_fp8 = true,
                                     .caches = true};

int64_t number_at(const HostProblem& host, const char* name, int64_t i) {
  return static_cast<int64_t>(host.at(name).get(i));
}

// A bias or mask for another number of keys: the existing elements, then zeros.
void resize_pairs(const HostProblem& from, HostProblem& to, const char* name, int64_t keys) {
  const TensorDesc& desc = from.at(name).desc();
  if (desc.shape[3] == 1) return;
  TensorDesc wanted = bench::contiguous(
      desc.dtype, std::vector<int64_t>{desc.shape[0], desc.shape[1], desc.shape[2], keys});
  HostTensor resized(wanted);
  const int64_t rows = desc.shape[0] * desc.shape[1] * desc.shape[2];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < keys; ++j) {
      resized.set(r * keys + j, j < desc.shape[3] ? from.at(name).get(r * desc.shape[3] + j) : 0);
    }
  }
  to.tensors.erase(name);
  to.tensors.emplace(name, std::move(resized));
  bench::set_tensor(to.problem, name, wanted);
}

// Copies the keys into one piece: entry by entry, packed if the queries are. Scales become one per key.
HostProblem gathered(const HostProblem& cache) {
  const Problem& from = cache.problem;
  const int64_t batch = bench::cache_entries(from), heads = from.k.shape[1];
  const bool packed = from.cu_seqlens_q.has_value();
  const auto last = static_cast<size_t>(from.k.rank - 1);
  std::vector<CacheKeys> keys;
  int64_t total = 0, longest = 0;
  for (int64_t b = 0; b < batch; ++b) {
    keys.push_back(bench::cache_keys(cache, b));
    total += keys.back().in_use;
    longest = std::max(longest, keys.back().in_use);
  }
  HostProblem out = cache;
  Problem& to = out.problem;
  for (auto* const gone : {&to.page_table, &to.kv_indptr, &to.kv_indices, &to.kv_last_page_len,
                           &to.cache_leftpad, &to.page_status}) {
    gone->reset();
  }
  to.max_seqlen_kv = 0;
  const auto put = [&](const char* name, const TensorDesc& desc) {
    bench::set_tensor(to, name, desc);
    out.tensors.erase(name);
    out.tensors.emplace(name, HostTensor(desc));
  };
  for (const char* const name : {"k", "v"}) {
    const TensorDesc& desc = cache.at(name).desc();
    put(name, packed
                  ? TensorDesc::contiguous(desc.dtype, {total, heads, desc.shape[last]})
                  : TensorDesc::contiguous(desc.dtype, {batch, heads, longest, desc.shape[last]}));
  }
  const int64_t described = packed ? total : longest;  // Skv
  for (const char* const name : {"bias", "mask"}) {
    if (cache.has(name)) resize_pairs(cache, out, name, described);
  }
  if (packed) {
    put("cu_seqlens_kv", TensorDesc::contiguous(DType::i32, {batch + 1}));
    out.at("cu_seqlens_kv").set(0, 0);
    to.seqlens_kv.reset();
  } else {
    put("seqlens_kv", TensorDesc::contiguous(DType::i32, {batch}));
  }
  for (const char* const name : {"k_scale", "v_scale"}) {
    if (cache.has(name)) put(name, TensorDesc::contiguous(DType::f32, {batch, heads, described}));
  }
  to.kv_scale_block = cache.has("k_scale") || cache.has("v_scale") ? 1 : 0;

  int64_t begin = 0;
  for (int64_t b = 0; b < batch; ++b) {
    const CacheKeys& entry = keys[static_cast<size_t>(b)];
    for (int64_t j = entry.first; j < entry.last; ++j) {
      bool clamped = false;
      const CacheRow at = bench::cache_row(cache, b, j, clamped);
      for (int64_t h = 0; h < heads; ++h) {
        for (const char* const name : {"k", "v"}) {
          const HostTensor& tensor = cache.at(name);
          const auto& shape = tensor.desc().shape;
          const int64_t width = shape[last];
          const int64_t source =
              from.cu_seqlens_kv ? at.row * heads + h : (at.lead * heads + h) * shape[2] + at.row;
          const int64_t target = packed ? (begin + j) * heads + h : (b * heads + h) * longest + j;
          for (int64_t d = 0; d < width; ++d) {
            out.at(name).set(target * width + d, tensor.get(source * width + d));
          }
        }
        for (const char* const name : {"k_scale", "v_scale"}) {
          if (!cache.has(name)) continue;
          const auto& shape = cache.at(name).desc().shape;
          const bool pages = from.page_table || from.kv_indices;
          const int64_t rows = pages ? from.k.shape[2] : std::max<int64_t>(from.k.shape[2], 1);
          const int64_t block = from.kv_scale_block == 0 ? rows : from.kv_scale_block;
          int64_t row = at.row, lead = at.lead;
          if (from.cu_seqlens_kv) {
            lead = b;
            row -= static_cast<int64_t>(cache.at("cu_seqlens_kv").get(b));
          }
          const auto of = [&](size_t d, int64_t i) { return shape[d] == 1 ? int64_t{0} : i; };
          const int64_t scale = (of(0, lead) * shape[1] + of(1, h)) * shape[2] +
                                of(2, from.kv_scale_block == 0 ? 0 : row / block);
          out.at(name).set((b * heads + h) * described + j, cache.at(name).get(scale));
        }
      }
    }
    begin += entry.in_use;
    if (packed) {
      out.at("cu_seqlens_kv").set(b + 1, static_cast<double>(begin));
    } else {
      out.at("seqlens_kv").set(b, static_cast<double>(entry.in_use));
    }
  }
  return out;
}

TEST(Cache, HasTheBitsOfTheSameKeysInOnePiece) {
  int64_t compared = 0;
  for (uint64_t seed = 0; seed < problem_count(400); ++seed) {
    HostProblem cache = bench::random_problem(seed, kCaches);
    HostProblem whole = gathered(cache);
    for (const char* const kernel : {"reference", "cpu_simd"}) {
      bench::poison_outputs(cache);
      bench::poison_outputs(whole);
      const Status of_whole = run_on_host(whole, on_kernel(kernel));
      const Status of_cache = run_on_host(cache, on_kernel(kernel));
      ASSERT_TRUE(of_whole.ok()) << seed << ' ' << of_whole.message();
      ASSERT_TRUE(of_cache.ok()) << seed << ' ' << of_cache.message();
      for (const char* const name : {"o", "lse"}) {
        if (!cache.has(name)) continue;
        EXPECT_TRUE(cache.at(name).same_elements(whole.at(name)))
            << kernel << ", " << name << ", seed " << seed << ": "
            << bench::describe(cache.problem);
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * static_cast<int64_t>(problem_count(400)));
}

TEST(Cache, PassesTheGates) {
  for (uint64_t seed = 1000; seed < 1000 + problem_count(300); ++seed) {
    HostProblem host = bench::random_problem(seed, kCaches);
    SCOPED_TRACE(seed);
    testing::expect_passes(host, on_kernel("cpu_simd"));
  }
}

TEST(Cache, SaysWhetherAPageWasOutOfRange) {
  int64_t clamped_runs = 0, clean_runs = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    HostProblem host = bench::random_problem(seed, kCaches);
    if (!host.has("page_status")) continue;
    bool clamped = false;
    for (int64_t b = 0; b < bench::cache_entries(host.problem); ++b) {
      const CacheKeys keys = bench::cache_keys(host, b);
      for (int64_t j = keys.first; j < keys.last; ++j) bench::cache_row(host, b, j, clamped);
    }
    ASSERT_TRUE(run_on_host(host, on_kernel("cpu_simd")).ok());
    EXPECT_EQ(host.at("page_status").get(0), clamped ? 1 : 0) << seed;
    (clamped ? clamped_runs : clean_runs) += 1;
    if (!clamped) continue;
    // Without a page status the same table is an error, and nothing is written.
    host.problem.page_status.reset();
    bench::poison_outputs(host);
    const HostTensor before = host.at("o");
    const Status status = run_on_host(host, on_kernel("cpu_simd"));
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << seed;
    EXPECT_NE(
        status.message().find(host.has("page_table") ? "page_table: page" : "kv_indices: page"),
        std::string::npos)
        << status.message();
    EXPECT_EQ(
        std::memcmp(before.memory().data(), host.at("o").memory().data(), before.memory().size()),
        0);
  }
  EXPECT_GT(clamped_runs, 5);
  EXPECT_GT(clean_runs, 20);
}

// B 2, Hq 4, Hkv 2, one query, D 8: five pages of 4 rows, two per row of the table.
Problem paged_problem() {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::f32, {2, 4, 1, 8});
  p.k = p.v = TensorDesc::contiguous(DType::f32, {5, 2, 4, 8});
  p.page_table = TensorDesc::contiguous(DType::i32, {2, 2});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  return p;
}

Problem flat_problem() {
  Problem p = paged_problem();
  p.page_table.reset();
  p.seqlens_kv.reset();
  p.kv_indptr = TensorDesc::contiguous(DType::i32, {3});
  p.kv_indices = TensorDesc::contiguous(DType::i32, {4});
  p.kv_last_page_len = TensorDesc::contiguous(DType::i32, {2});
  return p;
}

void expect_refused(const Problem& problem, const std::string& sentence) {
  const Result<ForwardProblem> resolved = resolve(problem);
  ASSERT_FALSE(resolved.ok()) << sentence;
  EXPECT_EQ(resolved.status().message(), sentence);
  EXPECT_EQ(resolved.status().code(), StatusCode::invalid_argument);
}

TEST(Cache, DescriptionsThatMakeNoSense) {
  ASSERT_TRUE(resolve(paged_problem()).ok());
  ASSERT_TRUE(resolve(flat_problem()).ok());
  using P = Problem&;
  const auto i32 = [](std::initializer_list<int64_t> shape) {
    return TensorDesc::contiguous(DType::i32, shape);
  };
  const std::pair<std::function<void(P)>, const char*> paged[] = {
      {[](P p) { p.page_table->dtype = DType::i64; }, "page_table: dtype is i64, wanted i32"},
      {[=](P p) {
         p.page_table = i32({3, 2});
       },
       "page_table: shape is [3, 2], wanted [B, max_pages] = [2, 2]"},
      {[=](P p) { p.kv_indices = i32({4}); },
       "kv_indptr: is missing, wanted both kv_indptr and kv_indices or neither"},
      {[](P p) {
         const auto table = p.page_table;
         p = flat_problem();
         p.page_table = table;
       },
       "page_table: is present with kv_indices, wanted one of them"},
      {[=](P p) { p.kv_last_page_len = i32({2}); },
       "kv_last_page_len: is present, wanted it only with kv_indices"},
      {[=](P p) {
         p.page_table.reset();
         p.k = p.v = TensorDesc::contiguous(DType::f32, {2, 2, 4, 8});
         p.page_status = i32({1});
       },
       "page_status: is present, wanted it only with page_table or kv_indices"},
      {[](P p) { p.max_seqlen_kv = 9; },
       "max_seqlen_kv: is 9, wanted 0 to 8, the rows that page_table has room for"},
      {[](P p) {
         p.v = TensorDesc::contiguous(DType::f32, {5, 2, 3, 8});
       },
       "v: shape is [5, 2, 3, 8], wanted [num_pages, Hkv, page_size, Dv] = [5, 2, 4, 8]"},
      {[](P p) { p.k.dtype = p.v.dtype = DType::f16; }, "k: dtype is f16, wanted q's f32, or fp8"},
      {[](P p) { p.k.dtype = DType::f8e4m3; }, "v: dtype is f32, wanted k's f8e4m3, or other fp8"},
      {[](P p) { p.v.dtype = DType::f8e5m2; }, "v: dtype is f8e5m2, wanted k's f32"},
      {[=](P p) { p.cache_leftpad = i32({3}); }, "cache_leftpad: shape is [3], wanted [B] = [2]"},
      // 2^30 pages of 2^30 rows exceed what an entry can have.
      {[](P p) {
         p.k = p.v = TensorDesc::strided(DType::f32, {1, 2, int64_t{1} << 30, 8}, {0, 0, 0, 1});
         p.page_table = TensorDesc::strided(DType::i32, {2, int64_t{1} << 30}, {0, 0});
       },
       "max_seqlen_kv: is 0 where a sequence has up to 1152921504606846976 rows, wanted at most "
       "2147483647"}};
  for (const auto& [change, sentence] : paged) {
    Problem p = paged_problem();
    change(p);
    expect_refused(p, sentence);
  }
}

// Sizes around powers of two up to the largest: refused or planned, and nothing overflows (checked
// in the sanitizers' stage).
TEST(Cache, HostileSizes) {
  bench::Random random(5);
  const auto extent = [&]() -> int64_t {
    if (random.chance(0.5)) return random.integer(0, 20);
    return std::min<int64_t>((int64_t{1} << random.integer(0, 31)) + random.integer(-1, 1),
                             std::numeric_limits<int32_t>::max());
  };
  const auto stride = [&](int64_t dense) {
    return random.chance(0.6)   ? 0
           : random.chance(0.5) ? dense
                                : int64_t{1} << random.integer(0, 61);
  };
  int64_t planned = 0;
  for (int n = 0; n < 20000; ++n) {
    const int64_t batch = extent(), heads_kv = extent(), heads = heads_kv * random.integer(1, 3);
    const int64_t queries = extent(), width = random.chance(0.8) ? 64 : extent();
    Problem p;
    p.q = TensorDesc::strided(DType::bf16, {batch, heads, queries, width},
                              {stride(1), stride(1), stride(1), 1});
    p.o = TensorDesc::contiguous(DType::bf16, {batch, heads, queries, width});
    const DType dtype = random.chance(0.3) ? DType::f8e4m3 : DType::bf16;
    p.k = p.v = TensorDesc::strided(dtype, {extent(), heads_kv, extent(), width},
                                    {stride(1), stride(1), stride(1), 1});
    if (random.chance(0.6)) {
      p.page_table = TensorDesc::strided(DType::i32, {batch, extent()}, {stride(1), stride(1)});
    } else {
      p.kv_indptr = TensorDesc::strided(DType::i32, {batch + 1}, {stride(1)});
      p.kv_indices = TensorDesc::strided(DType::i32, {extent()}, {stride(1)});
      if (random.chance(0.5)) p.kv_last_page_len = TensorDesc::contiguous(DType::i32, {batch});
    }
    if (random.chance(0.3)) p.max_seqlen_kv = extent();
    if (random.chance(0.3)) p.kv_scale_block = extent();
    if (dtype == DType::f8e4m3) p.k_scale = TensorDesc::contiguous(DType::f32, {1, 1, 1});
    if (random.chance(0.3)) p.cache_leftpad = TensorDesc::strided(DType::i32, {batch}, {stride(1)});
    p.causal = random.chance(0.5);
    for (const char* const kernel : {"cpu_simd", "reference"}) {
      const Result<Plan> plan = make_plan(p, on_kernel(kernel));
      if (plan.ok()) {
        ++planned;
      } else {
        EXPECT_FALSE(plan.status().message().empty());
      }
    }
  }
  EXPECT_GT(planned, 2000);
}

void expect_run_refused(HostProblem& host, const std::string& sentence) {
  const Status status = run_on_host(host, on_kernel("cpu_simd"));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.message(), sentence);
}

TEST(Cache, ListsAndLengthsThatMakeNoSense) {
  HostProblem host = bench::make_host_problem(flat_problem(), 1);
  ASSERT_TRUE(run_on_host(host, on_kernel("cpu_simd")).ok());
  host.at("kv_last_page_len").set(1, 5);
  expect_run_refused(host, "kv_last_page_len: entry 1 is 5, wanted 1 to 4, the page size");
  host.at("kv_last_page_len").set(1, 0);
  expect_run_refused(host, "kv_last_page_len: entry 1 is 0, wanted 1 to 4, the page size");
  host.at("kv_last_page_len").set(1, 4);
  host.at("kv_indptr").set(2, 5);
  expect_run_refused(host,
                     "kv_indptr: entry 2 is 5 after 2, wanted 2 to 4, the size of kv_indices");
  host.at("kv_indptr").set(2, 1);
  expect_run_refused(host,
                     "kv_indptr: entry 2 is 1 after 2, wanted 2 to 4, the size of kv_indices");
  host.at("kv_indptr").set(2, 4);
  host.at("kv_indptr").set(0, 1);
  expect_run_refused(host, "kv_indptr: first entry is 1, wanted 0");

  Problem short_list = flat_problem();
  short_list.max_seqlen_kv = 5;
  HostProblem full = bench::make_host_problem(short_list, 1);
  full.at("kv_last_page_len").set(0, 2);
  expect_run_refused(full, "kv_indptr: sequence 0 has 6 rows, wanted at most 5, max_seqlen_kv");
  // If lengths are given in addition to the list, the smaller number counts, as with a page table.
  short_list.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  HostProblem shorter = bench::make_host_problem(short_list, 1);
  shorter.at("kv_last_page_len").set(0, 2);
  shorter.at("seqlens_kv").set(0, 5);
  shorter.at("seqlens_kv").set(1, 3);
  ASSERT_TRUE(run_on_host(shorter, on_kernel("cpu_simd")).ok());
  HostProblem cut = bench::make_host_problem(flat_problem(), 1);
  for (const char* const name : {"q", "k", "v", "kv_indices"}) cut.at(name) = shorter.at(name);
  cut.at("kv_last_page_len").set(0, 1);
  cut.at("kv_indptr").set(2, 3);
  cut.at("kv_last_page_len").set(1, 3);
  ASSERT_TRUE(run_on_host(cut, on_kernel("cpu_simd")).ok());
  for (int64_t i = 0; i < cut.at("o").elements(); ++i) {
    EXPECT_EQ(shorter.at("o").get(i), cut.at("o").get(i)) << i;
  }
  shorter.at("seqlens_kv").set(0, 6);
  expect_run_refused(shorter, "seqlens_kv: entry 0 is 6, wanted 0 to 5");

  Problem padded = paged_problem();
  padded.cache_leftpad = TensorDesc::contiguous(DType::i32, {2});
  HostProblem paged = bench::make_host_problem(padded, 1);
  paged.at("seqlens_kv").set(0, 9);
  expect_run_refused(paged, "seqlens_kv: entry 0 is 9, wanted 0 to 8");
  paged.at("seqlens_kv").set(0, 8);
  paged.at("cache_leftpad").set(1, -1);
  expect_run_refused(paged, "cache_leftpad: entry 1 is -1, wanted 0 to 8");
  paged.at("cache_leftpad").set(1, 8);  // no rows are left
  ASSERT_TRUE(run_on_host(paged, on_kernel("cpu_simd")).ok());
  for (int64_t d = 0; d < 32; ++d) EXPECT_EQ(paged.at("o").get(32 + d), 0);
}

TEST(Cache, EveryKernelSaysWhetherItReadsPages) {
  for (const auto& [problem, name] :
       {std::pair{paged_problem(), "page_table"}, {flat_problem(), "kv_indices"}}) {
    const auto verdicts = explain(problem);
    ASSERT_TRUE(verdicts.ok());
    for (const KernelVerdict& verdict : *verdicts) {
      if (verdict.kernel == "naive") continue;
      EXPECT_EQ(verdict.refusal, "") << verdict.kernel;
    }
    Gradients gradients;
    gradients.d_o = problem.o;
    gradients.dq = problem.q;
    gradients.dk = problem.k;
    gradients.dv = problem.v;
    Problem with_lse = problem;
    with_lse.lse = TensorDesc::contiguous(DType::f32, {2, 4, 1});
    const auto backward = make_backward_plan(with_lse, gradients);
    ASSERT_FALSE(backward.ok());
    EXPECT_EQ(
        backward.status().message(),
        std::string(name) + ": is given, wanted keys and values in one piece for a backward pass");
  }
}

// Converts the bits of a tree mask to a mask of pairs, from docs/semantics.md only.
HostProblem with_tree_as_pairs(const HostProblem& host) {
  const Result<ForwardProblem> resolved = resolve(host.problem);
  EXPECT_TRUE(resolved.ok());
  const ForwardProblem& p = *resolved;
  HostProblem out = host;
  const TensorDesc& bits = *host.problem.tree_mask;
  const bool packed = bits.rank == 2;
  const int64_t words = bits.shape[packed ? 1 : 2];
  const TensorDesc desc =
      TensorDesc::contiguous(DType::boolean, {p.batch, p.heads_q, p.seqlen_q, p.seqlen_kv});
  HostTensor mask(desc);
  const HostTensor& tree = host.at("tree_mask");
  const HostTensor* const given = host.has("mask") ? &host.at("mask") : nullptr;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = packed ? number_at(host, "cu_seqlens_q", b) : 0;
    const int64_t all = packed ? number_at(host, "cu_seqlens_q", b + 1) - first : p.seqlen_q;
    const int64_t queries = host.has("seqlens_q") ? number_at(host, "seqlens_q", b) : all;
    const int64_t keys = bench::cache_keys(host, b).in_use;
    const int64_t offset = p.alignment == Alignment::top_left       ? 0
                           : p.alignment == Alignment::bottom_right ? keys - std::min(queries, all)
                           : host.has("causal_offsets") ? number_at(host, "causal_offsets", b)
                                                        : p.causal_offset;
    for (int64_t i = 0; i < all; ++i) {
      const int64_t row = packed ? first + i : (bits.shape[0] == 1 ? 0 : b) * p.seqlen_q + i;
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t t = j - offset;
        bool sees = t < 0;
        if (t >= 0 && t < 32 * words) {
          const auto word = static_cast<int64_t>(tree.get(row * words + t / 32));
          sees = ((word & 0xFFFFFFFF) >> (t % 32)) % 2 == 1;
        }
        for (int64_t h = 0; h < p.heads_q; ++h) {
          bool attends = sees;
          if (given != nullptr && sees) {
            const auto& shape = given->desc().shape;
            const auto at = [&](size_t d, int64_t n) { return shape[d] == 1 ? 0 : n; };
            const int64_t pair =
                ((at(0, b) * shape[1] + at(1, h)) * shape[2] + at(2, i)) * shape[3] + at(3, j);
            attends = given->get(pair) != 0;
          }
          mask.set(((b * p.heads_q + h) * p.seqlen_q + i) * p.seqlen_kv + j, attends ? 1 : 0);
        }
      }
    }
  }
  out.problem.tree_mask.reset();
  out.problem.mask = desc;
  out.tensors.erase("tree_mask");
  out.tensors.erase("mask");
  out.tensors.emplace("mask", std::move(mask));
  return out;
}

TEST(Cache, TreeMasksAreMasksOfPairs) {
  int compared = 0;
  for (uint64_t seed = 0; compared < 30; ++seed) {
    HostProblem host = bench::random_problem(seed, kCaches);
    if (!host.has("tree_mask") || host.problem.q.shape[0] == 0) continue;
    HostProblem pairs = with_tree_as_pairs(host);
    ++compared;
    for (const char* const kernel : {"reference", "naive", "cpu_simd"}) {
      if (!make_plan(host.problem, on_kernel(kernel)).ok()) continue;
      for (HostProblem* const one : {&host, &pairs}) {
        bench::poison_outputs(*one);
        const Status status = run_on_host(*one, on_kernel(kernel));
        ASSERT_TRUE(status.ok()) << "seed " << seed << ' ' << kernel << ' ' << status.message();
      }
      EXPECT_TRUE(host.at("o").same_elements(pairs.at("o"))) << "seed " << seed << ' ' << kernel;
    }
  }
}

TEST(Cache, TreeMasksThatMakeNoSense) {
  Problem p = paged_problem();
  p.tree_mask = TensorDesc::contiguous(DType::i64, {2, 1, 1});
  expect_refused(p, "tree_mask: dtype is i64, wanted i32");
  p.tree_mask = TensorDesc::contiguous(DType::i32, {2, 1});
  expect_refused(p, "tree_mask: rank is 2, wanted 3 for [B, Sq, words]");
  p.tree_mask = TensorDesc::contiguous(DType::i32, {2, 2, 1});
  expect_refused(p, "tree_mask: shape is [2, 2, 1], wanted [B, Sq, words] = [2, 1, 1]");
  p.tree_mask = TensorDesc::contiguous(DType::i32, {1, 1, 0});  // drops all keys from the offset on
  HostProblem host = bench::make_host_problem(p, 1);
  EXPECT_TRUE(run_on_host(host, on_kernel("cpu_simd")).ok());
  p.tree_mask = TensorDesc::contiguous(DType::i32, {2, 1, 1});
  host = bench::make_host_problem(p, 1);
  Arguments arguments = host.arguments();
  arguments.tree_mask = nullptr;
  const Result<Plan> plan = make_plan(p, on_kernel("cpu_simd"));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->run(arguments).message(),
            "tree_mask: pointer is null, wanted the data of a tensor of the problem");
}

// Like every CUDA kernel that does not declare support for caches.
TEST(Cache, IsRefusedForAKernelThatDoesNotSayThatItReadsOne) {
  Variant other;
  other.name = "other";
  other.supports = everything<ForwardProblem>();
  Features& takes = other.supports.features;
  takes = takes - feature_sets::kCaches - Features{Feature::tree_mask, Feature::v_apart};
  other.plan = [](const ForwardProblem&, const PlanContext&) -> Result<PlannedKernel> {
    return PlannedKernel{};
  };
  const auto refusal = [&](const Problem& problem) {
    const Result<ForwardProblem> resolved = resolve(problem);
    return resolved.ok() ? refusal_of(other, *resolved, {}) : resolved.status().message();
  };
  EXPECT_EQ(refusal(paged_problem()), "page_table: is given, wanted keys and values in one piece");
  EXPECT_EQ(refusal(flat_problem()), "kv_indices: is given, wanted keys and values in one piece");
  Problem whole = paged_problem();
  whole.page_table.reset();
  whole.k = whole.v = TensorDesc::contiguous(DType::f32, {2, 2, 4, 8});
  EXPECT_EQ(refusal(whole), "");
  Problem padded = whole;
  padded.cache_leftpad = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_EQ(refusal(padded), "cache_leftpad: is given, wanted keys from the first row");
  Problem narrow = whole;
  narrow.k.dtype = narrow.v.dtype = DType::f8e4m3;
  EXPECT_EQ(refusal(narrow), "k: dtype is f8e4m3, wanted q's f32");
  Problem tree = whole;
  tree.tree_mask = TensorDesc::contiguous(DType::i32, {2, 1, 1});
  EXPECT_EQ(refusal(tree), "tree_mask: is given, wanted a mask of pairs");
  takes = takes | feature_sets::kCaches;
  for (const Problem& problem : {paged_problem(), flat_problem(), padded, narrow}) {
    EXPECT_EQ(refusal(problem), "");
  }
  EXPECT_EQ(refusal(tree), "tree_mask: is given, wanted a mask of pairs");
  takes = takes | Feature::tree_mask;
  EXPECT_EQ(refusal(tree), "");
  narrow.v.dtype = DType::f8e5m2;
  EXPECT_EQ(refusal(narrow), "v: dtype is f8e5m2, wanted k's f8e4m3");
  takes = takes | Feature::v_apart;
  EXPECT_EQ(refusal(narrow), "");
}

// A plan depends on capacities: any lengths and tables run on it, with the same workspace.
TEST(Cache, OnePlanServesEveryLength) {
  Problem problem = paged_problem();
  problem.k = problem.v = TensorDesc::contiguous(DType::f32, {700, 2, 16, 8});
  problem.page_table = TensorDesc::contiguous(DType::i32, {2, 640});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 1});
  const Result<Plan> plan = make_plan(problem, on_kernel("cpu_simd"));
  ASSERT_TRUE(plan.ok());
  HostProblem host = bench::make_host_problem(problem, 3);
  std::vector<std::byte> memory(plan->workspace_bytes() + 256);
  void* aligned = memory.data();
  size_t room = memory.size();
  ASSERT_NE(std::align(256, plan->workspace_bytes(), aligned, room), nullptr);
  for (const auto& [first, second] : {std::pair{1, 1}, {0, 9000}, {10240, 10240}, {4097, 3}}) {
    host.at("seqlens_kv").set(0, first);
    host.at("seqlens_kv").set(1, second);
    const Result<bench::Reference> reference = bench::compute_reference(host);
    ASSERT_TRUE(reference.ok());
    bench::poison_outputs(host);
    std::memset(memory.data(), 0xFF, memory.size());
    ASSERT_TRUE(plan->run(host.arguments(), aligned, plan->workspace_bytes()).ok());
    const bench::Verdict verdict = bench::judge(host, *reference);
    EXPECT_TRUE(verdict.passed) << first << ' ' << second << ' ' << verdict.failure;
  }
}

}  // namespace
}  // namespace flashcore
