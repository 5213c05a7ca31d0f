// The SIMD kernel against the gates, on every instruction set of this machine: a table of problems, and random ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "tests/cpu/forward_problem.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using testing::f32, testing::kInputTypes, testing::Shape;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Row {
  std::string about;
  Shape shape;
  DType dtype;
  uint64_t seed;
  std::function<void(Problem&)> ask = {};
  std::function<void(HostProblem&)> fill = {};
  std::optional<DType> limits_of = {};  // of another type than the inputs'
};
using Rows = std::vector<Row>;

TensorDesc i32(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

void set_all(HostProblem& host, const char* name, const std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    host.at(name).set(static_cast<int64_t>(i), static_cast<double>(values[i]));
  }
}

Rows standard_shapes() {
  Rows rows;
  for (const DType dtype : kInputTypes) {
    for (const bool causal : {false, true}) {
      for (const Shape& shape : {Shape{}, Shape{.batch = 1, .seqlen_q = 512, .seqlen_kv = 512}}) {
        rows.push_back(
            {"a standard shape", shape, dtype, 0, [causal](Problem& p) { p.causal = causal; }});
      }
    }
  }
  return rows;
}

// Each tensor is widened to fp32 by its own type: the limits of fp32 hold.
Rows mixes_of_fp8() {
  const Shape shape{.batch = 1, .heads_q = 4, .heads_kv = 2, .seqlen_q = 33, .seqlen_kv = 300};
  Rows rows;
  for (const DType q : {DType::f8e4m3, DType::f8e5m2, DType::f32, DType::bf16}) {
    for (const DType k : {DType::f8e4m3, DType::f8e5m2}) {
      for (const DType v : {DType::f8e4m3, DType::f8e5m2}) {
        const auto ask = [=](Problem& p) {
          p.k.dtype = k;
          p.v.dtype = v;
          p.o.dtype = DType::f32;
          p.k_scale = p.v_scale = f32({1, 2, 1});
        };
        rows.push_back({fmt::format("{} {} {}", to_string(q), to_string(k), to_string(v)),
                        shape,
                        q,
                        7,
                        ask,
                        {},
                        DType::f32});
      }
    }
  }
  return rows;
}

// One feature at a time, over several blocks of keys, with lengths that are multiples of nothing.
Rows each_feature() {
  using P = Problem&;
  const auto mask = [](std::initializer_list<int64_t> shape) {
    return TensorDesc::contiguous(DType::boolean, shape);
  };
  const auto offset = [](P p, int64_t by) { p.alignment = Alignment::given, p.causal_offset = by; };
  const std::pair<std::string_view, std::function<void(P)>> features[] = {
      {"causal", [](P p) { p.causal = true; }},
      {"causal top left", [](P p) { p.causal = true, p.alignment = Alignment::top_left; }},
      {"causal that hides rows", [=](P p) { p.causal = true, offset(p, -40); }},
      {"window", [](P p) { p.window_left = 20, p.window_right = 9; }},
      {"left window", [](P p) { p.window_left = 300; }},
      {"bias",
       [](P p) {
         p.bias = f32({2, 4, 75, 333});
       }},
      {"f16 bias of keys",
       [](P p) {
         p.bias = TensorDesc::contiguous(DType::f16, {1, 1, 1, 333});
       }},
      {"bf16 bias of queries",
       [](P p) {
         p.bias = TensorDesc::contiguous(DType::bf16, {2, 1, 75, 1});
       }},
      {"mask",
       [=](P p) {
         p.mask = mask({2, 4, 75, 333});
       }},
      {"mask of keys",
       [=](P p) {
         p.mask = mask({1, 1, 1, 333});
       }},
      {"mask of queries",
       [=](P p) {
         p.mask = mask({1, 4, 75, 1});
       }},
      {"ALiBi", [](P p) { p.alibi_slopes = f32({4}); }},
      {"ALiBi far from the diagonal",
       [=](P p) {
         p.alibi_slopes = f32({2, 4});
         offset(p, 100000);
         p.lse.reset();  // fp32 is too coarse for the gate at -25000
       }},
      {"softcap", [](P p) { p.softcap = 0.7f; }},
      {"sinks", [](P p) { p.sinks = f32({4}); }},
      {"sinks without keys", [=](P p) { p.sinks = f32({4}), p.causal = true, offset(p, -400); }},
      {"dropout", [](P p) { p.dropout_p = 0.3f; }},
      {"dropout of everything", [](P p) { p.dropout_p = 1.0f; }},
      {"negative scale", [](P p) { p.softmax_scale = -0.2f; }},
      {"zero scale", [](P p) { p.softmax_scale = 0.0f, p.causal = true; }},
      {"lengths", [](P p) { p.seqlens_q = p.seqlens_kv = i32(2); }},
      {"no LSE", [](P p) { p.lse.reset(); }},
  };
  const Shape shape{.heads_q = 4, .heads_kv = 2, .seqlen_q = 75, .seqlen_kv = 333, .head_dim = 40};
  Rows rows;
  for (const auto& [name, ask] : features) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      rows.push_back({std::string(name), shape, dtype, 5, ask, [](HostProblem& host) {
                        if (!host.has("seqlens_q")) return;
                        set_all(host, "seqlens_q", {31, 0});
                        set_all(host, "seqlens_kv", {0, 257});
                      }});
    }
  }
  return rows;
}

// Head dimensions that end within a vector, and tiles of 4, 2 and 1 rows.
Rows any_few_rows() {
  Rows rows;
  for (const int64_t head_dim : {1, 63, 64, 80, 128, 256}) {
    for (int64_t queries = 1; queries <= 16; ++queries) {
      for (const DType dtype : kInputTypes) {
        rows.push_back({fmt::format("{} rows, D {}", queries, head_dim),
                        {1, 2 * queries, 2, 1, 70, head_dim},
                        dtype,
                        static_cast<uint64_t>(queries)});
      }
    }
  }
  return rows;
}

Rows sizes_of_jobs() {
  Rows rows;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t seqlen_q : {1, 3}) {
      rows.push_back(
          {"few queries and many keys", {2, 12, 4, seqlen_q, 9000, 32}, dtype, 6, [](Problem& p) {
             p.causal = true, p.sinks = f32({12});
           }});
    }
  }
  for (const int64_t batch : {15, 16, 17}) {
    rows.push_back(
        {"the counts of each entry's jobs and partial results precede the scratch memory",
         {batch, 2, 1, 1, 4100, 8},
         DType::f32,
         10});
  }
  for (const int64_t group : {48, 49, 100}) {
    rows.push_back({"more heads share a KV head than one job takes",
                    {1, 2 * group, 2, 3, 20, 16},
                    DType::f32,
                    11});
  }
  for (const int64_t head_dim : {256, 576, 1300}) {
    rows.push_back({"large heads", {1, 2, 1, 70, 300, head_dim}, DType::f32, 7});
  }
  for (const auto& [heads_kv, queries] : {std::pair<int64_t, int64_t>{9, 1}, {17, 2}, {11, 120}}) {
    const int64_t few = std::min<int64_t>(queries, 4);
    rows.push_back(
        {"more KV heads than an in-place job takes, in parts of different sizes, with few "
         "and many rows after the queries in use",
         {3, 2 * heads_kv, heads_kv, queries, 1100, 24},
         DType::bf16,
         15,
         [](Problem& p) { p.seqlens_q = i32(3); },
         [few](HostProblem& host) {
           set_all(host, "seqlens_q", {1, 0, few});
         }});
  }
  return rows;
}

// A packed batch in which entries end at these rows.
Row packed(std::string about, const std::vector<int64_t>& ends_q,
           const std::vector<int64_t>& ends_kv, uint64_t seed, int64_t longest, bool with_lse) {
  const auto ask = [=](Problem& p) {
    p.q = p.o = f32({ends_q.back(), 4, 16});
    p.k = p.v = f32({ends_kv.back(), 2, 16});
    p.lse.reset();
    if (with_lse) p.lse = f32({ends_q.back(), 4});
    p.cu_seqlens_q = p.cu_seqlens_kv = i32(std::ssize(ends_q));
    p.max_seqlen_kv = longest;
  };
  const auto fill = [=](HostProblem& host) {
    set_all(host, "cu_seqlens_q", ends_q);
    set_all(host, "cu_seqlens_kv", ends_kv);
  };
  return {std::move(about), {}, DType::f32, seed, ask, fill};
}

// A plan knows the total of the keys, not the entries: each entry that is a key longer than a split has one
// partial result more than its share of the total. The workspace ends in canaries. Two KV heads: 2 queries give 4
// rows per head, which are read in place in parts of 2048 keys; 12 queries use parts of 4096.
Rows entries_just_past_a_split() {
  Rows rows;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{4097, 4097, 4097},
                                              {4095, 4096, 4097, 4098},
                                              {4098},
                                              {1, 4097, 0},
                                              {2049, 2049, 2049},
                                              {2047, 2048, 2049}}) {
    for (const auto& [even, odd] : {std::pair<int64_t, int64_t>{2, 2}, {12, 12}, {2, 12}}) {
      std::vector<int64_t> ends_q = {0}, ends_kv = {0};
      for (const int64_t length : lengths) {
        ends_q.push_back(ends_q.back() + (ends_q.size() % 2 == 1 ? even : odd));
        ends_kv.push_back(ends_kv.back() + length);
      }
      const int64_t most = *std::max_element(lengths.begin(), lengths.end());
      for (const int64_t longest : {int64_t{0}, most}) {
        rows.push_back(packed("a key longer than a split", ends_q, ends_kv, 9, longest, true));
      }
    }
  }
  // Otherwise the last entry's would overwrite the canaries.
  for (const int64_t queries : {100, 200, 400}) {
    rows.push_back(packed("entries whose keys are not split have jobs but no partial results",
                          {0, queries, queries + 1}, {0, 16, 16 + 8200}, 12, 0, false));
  }
  return rows;
}

// NaN whose payload has every bit set, like poisoned memory, also in lanes past the last key.
void hide(HostProblem& host, const std::function<bool(int64_t entry, int64_t key)>& is_hidden) {
  for (const char* const name : {"k", "v"}) {
    const auto& shape = host.at(name).desc().shape;
    for (int64_t i = 0; i < host.at(name).elements(); ++i) {
      const int64_t row = i / shape[3];
      if (is_hidden(row / shape[2] / shape[1], row % shape[2])) host.at(name).set(i, kNaN);
    }
  }
}

Rows hidden_keys() {
  Rows rows;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    rows.push_back(
        {"hidden keys of any bits",
         {2, 2, 1, 20, 300, 64},
         dtype,
         9,
         [](Problem& p) { p.seqlens_kv = i32(2); },
         [](HostProblem& host) {
           set_all(host, "seqlens_kv", {70, 257});
           hide(host, [](int64_t entry, int64_t key) { return key >= (entry == 0 ? 70 : 257); });
         }});
  }
  rows.push_back({"a bias of -inf removes NaN",
                  {1, 1, 1, 3, 40, 8},
                  DType::f32,
                  13,
                  [](Problem& p) {
                    p.bias = f32({1, 1, 1, 40});
                  },
                  [](HostProblem& host) {
                    for (const int64_t key : {5, 39}) host.at("bias").set(key, -kInf);
                    hide(host, [](int64_t, int64_t key) { return key == 5 || key == 39; });
                  }});
  return rows;
}

struct Group {
  const char* name;
  Rows (*rows)();
};
class Gates : public ::testing::TestWithParam<Group> {};
INSTANTIATE_TEST_SUITE_P(
    Cpu, Gates,
    ::testing::Values(Group{"StandardShapes", standard_shapes}, Group{"MixesOfFp8", mixes_of_fp8},
                      Group{"EachFeature", each_feature}, Group{"AnyFewRows", any_few_rows},
                      Group{"SizesOfJobs", sizes_of_jobs},
                      Group{"EntriesJustPastASplit", entries_just_past_a_split},
                      Group{"HiddenKeys", hidden_keys}),
    [](const auto& group) { return std::string(group.param.name); });

TEST_P(Gates, PassOnEveryInstructionSet) {
  for (const Row& row : GetParam().rows()) {
    SCOPED_TRACE(fmt::format("{} {}", to_string(row.dtype), row.about));
    Problem problem = testing::problem_of(row.shape, row.dtype);
    if (row.ask) row.ask(problem);
    HostProblem host = bench::make_host_problem(problem, row.seed);
    if (row.fill) row.fill(host);
    testing::expect_passes_on_every_target(host, 2, row.limits_of);
  }
}

TEST(Gates, RandomProblemsPassOnEveryInstructionSet) {
  for (uint64_t seed = 0; seed < problem_count(300); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    testing::expect_passes_on_every_target(bench::random_problem(seed), seed % 2 == 0 ? 2 : 3);
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace flashcore
