// Merge and append against docs/semantics.md, written a second time in fp64.
#include "flashcore/serving.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/random_layout.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "problem/dtype.hpp"
#include "tests/cpu/run_on_host.hpp"

namespace flashcore {
namespace {

using bench::HostTensor;
using bench::Random;
using bench::random_layout;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TensorDesc i32(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

double rounded(DType dtype, double value) {
  double stored = 0;
  store_element(dtype, &stored, 0, value);
  return load_element(dtype, &stored, 0);
}

PlanOptions on_threads(int threads) {
  PlanOptions options;
  options.threads = threads;
  return options;
}

PlanOptions on_gpu() {
  PlanOptions options;
  options.device = {DeviceKind::cuda, 0};
  return options;
}

// ---------------------------------------------------------------------------------------------
// Merge

struct MergeCase {
  Merge what;
  std::map<std::string, HostTensor> tensors;

  HostTensor& at(const std::string& name) { return tensors.at(name); }
  MergeArguments arguments() {
    return {.o_a = at("o_a").data(),
            .o_b = at("o_b").data(),
            .lse_a = static_cast<float*>(at("lse_a").data()),
            .lse_b = static_cast<float*>(at("lse_b").data()),
            .o = at("o").data(),
            .lse = what.lse ? static_cast<float*>(at("lse").data()) : nullptr};
  }
};

MergeCase random_merge(Random& random) {
  MergeCase one;
  const int64_t batch = random.integer(1, 3), heads = random.integer(1, 4),
                rows = random.integer(0, 90), width = random.integer(1, 140);
  const DType dtype = random.pick({DType::f32, DType::f16, DType::bf16});
  Merge& what = one.what;
  what.o_a = random_layout(random, dtype, batch, heads, rows, width, false);
  what.o_b = random_layout(random, dtype, batch, heads, rows, width, false);
  what.o = random_layout(random, random.chance(0.3) ? DType::f32 : dtype, batch, heads, rows, width,
                         false);
  what.lse_a = what.lse_b = TensorDesc::contiguous(DType::f32, {batch, heads, rows});
  if (random.chance(0.8)) what.lse = what.lse_a;
  for (const auto& [name, desc] : {std::pair{"o_a", what.o_a},
                                   {"o_b", what.o_b},
                                   {"o", what.o},
                                   {"lse_a", what.lse_a},
                                   {"lse_b", what.lse_b}}) {
    one.tensors.emplace(name, HostTensor(desc));
  }
  if (what.lse) one.tensors.emplace("lse", HostTensor(*what.lse));
  for (const char* const name : {"o_a", "o_b"}) one.at(name).fill([&] { return random.normal(); });
  for (const auto& [lse, o] : {std::pair{"lse_a", "o_a"}, {"lse_b", "o_b"}}) {
    HostTensor& values = one.at(lse);
    for (int64_t i = 0; i < values.elements(); ++i) {
      values.set(i, 3 * random.normal() + (random.chance(0.05) ? 400 : 0));
      if (!random.chance(0.1)) continue;
      values.set(i, -kInf);  // whatever its O is, it counts for nothing
      for (int64_t d = 0; d < width; ++d) one.at(o).set(i * width + d, kNaN);
    }
  }
  return one;
}

void expect_merged(MergeCase& one, const std::string& where) {
  const int64_t width = one.what.o.shape[3];
  const DType dtype = one.what.o.dtype;
  for (int64_t i = 0; i < one.at("lse_a").elements(); ++i) {
    const double a = one.at("lse_a").get(i), b = one.at("lse_b").get(i);
    const double top = std::max(a, b);
    const double lse = top == -kInf ? -kInf : top + std::log(std::exp(a - top) + std::exp(b - top));
    if (one.what.lse) {
      const double got = one.at("lse").get(i);
      if (std::isfinite(lse)) {
        EXPECT_NEAR(got, lse, 1e-6 * std::max(1.0, std::abs(lse))) << where;
      } else {
        EXPECT_EQ(got, lse) << where;
      }
    }
    for (int64_t d = 0; d < width; ++d) {
      double want = 0;
      for (const auto& [part, o] : {std::pair{a, "o_a"}, {b, "o_b"}}) {
        const auto weight = static_cast<double>(static_cast<float>(std::exp(part - lse)));
        if (lse != -kInf && weight > 0) want += weight * one.at(o).get(i * width + d);
      }
      const double step = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
      ASSERT_NEAR(one.at("o").get(i * width + d), want, step * std::max(1.0, std::abs(want)))
          << where << ", row " << i << ", column " << d;
    }
  }
  for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(tensor.canaries_intact()) << name;
}

TEST(Merge, IsAttentionOverBoth) {
  Random random(7);
  for (int n = 0; n < 200; ++n) {
    MergeCase one = random_merge(random);
    const Status status = merge(one.what, one.arguments(), on_threads(2));
    ASSERT_TRUE(status.ok()) << n << ' ' << status.message();
    expect_merged(one, fmt::format("case {}", n));
  }
}

TEST(Merge, RoundsToNearestEven) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    MergeCase one;
    one.what.o_a = one.what.o_b = one.what.o = TensorDesc::contiguous(dtype, {1, 1, 1, 64});
    one.what.lse_a = one.what.lse_b = TensorDesc::contiguous(DType::f32, {1, 1, 1});
    for (const char* const name : {"o_a", "o_b", "o"}) {
      one.tensors.emplace(name, HostTensor(one.what.o));
    }
    for (const char* const name : {"lse_a", "lse_b"}) {
      one.tensors.emplace(name, HostTensor(one.what.lse_a));
      one.at(name).set(0, 0);  // weights 1/2 each
    }
    Random random(11);
    for (const char* const name : {"o_a", "o_b"}) {
      one.at(name).fill([&] { return random.normal() * std::exp2(random.integer(-20, 10)); });
    }
    ASSERT_TRUE(merge(one.what, one.arguments()).ok());
    for (int64_t d = 0; d < 64; ++d) {
      const auto sum = static_cast<float>(0.5 * one.at("o_a").get(d) + 0.5 * one.at("o_b").get(d));
      EXPECT_EQ(one.at("o").get(d), rounded(dtype, static_cast<double>(sum))) << d;
    }
  }
}

// Halves of the keys of one problem, merged, are the whole.
TEST(Merge, MakesTwoHalvesTheWhole) {
  Problem whole;
  whole.q = whole.o = TensorDesc::contiguous(DType::f32, {2, 4, 3, 32});
  whole.k = whole.v = TensorDesc::contiguous(DType::f32, {2, 2, 100, 32});
  whole.lse = TensorDesc::contiguous(DType::f32, {2, 4, 3});
  bench::HostProblem host = bench::make_host_problem(whole, 5);
  ASSERT_TRUE(testing::run_on_host(host, {}).ok());
  const int64_t cut = 37;
  MergeCase one;
  one.what.o_a = one.what.o_b = one.what.o = whole.o;
  one.what.lse_a = one.what.lse_b = *whole.lse;
  one.what.lse = whole.lse;
  for (const auto& [part, first, count] :
       {std::tuple{std::string("a"), int64_t{0}, cut}, {std::string("b"), cut, 100 - cut}}) {
    Problem half = whole;
    half.k.shape[2] = half.v.shape[2] = count;  // strides stay
    Arguments args = host.arguments();
    args.k = static_cast<const float*>(args.k) + first * 32;
    args.v = static_cast<const float*>(args.v) + first * 32;
    one.tensors.emplace("o_" + part, HostTensor(whole.o));
    one.tensors.emplace("lse_" + part, HostTensor(*whole.lse));
    args.o = one.at("o_" + part).data();
    args.lse = one.at("lse_" + part).data();
    const Result<Plan> plan = make_plan(half);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(plan->run(args).ok());
  }
  one.tensors.emplace("o", HostTensor(whole.o));
  one.tensors.emplace("lse", HostTensor(*whole.lse));
  // In place: o is o_a, and lse is lse_a.
  ASSERT_TRUE(merge(one.what, one.arguments()).ok());
  for (int64_t i = 0; i < host.at("o").elements(); ++i) {
    EXPECT_NEAR(one.at("o").get(i), host.at("o").get(i), 2e-6);
  }
  MergeArguments in_place = one.arguments();
  in_place.o = one.at("o_a").data();
  in_place.lse = static_cast<float*>(one.at("lse_a").data());
  ASSERT_TRUE(merge(one.what, in_place).ok());
  EXPECT_TRUE(one.at("o_a").same_elements(one.at("o")));
  EXPECT_TRUE(one.at("lse_a").same_elements(one.at("lse")));
}

TEST(Merge, RefusesWhatMakesNoSense) {
  MergeCase one;
  one.what.o_a = one.what.o_b = one.what.o = TensorDesc::contiguous(DType::bf16, {2, 2, 3, 8});
  one.what.lse_a = one.what.lse_b = TensorDesc::contiguous(DType::f32, {2, 2, 3});
  one.what.lse = one.what.lse_a;
  for (const char* const name : {"o_a", "o_b", "o"}) {
    one.tensors.emplace(name, HostTensor(one.what.o)).first->second.fill([] { return 1.0; });
  }
  for (const char* const name : {"lse_a", "lse_b", "lse"}) {
    one.tensors.emplace(name, HostTensor(one.what.lse_a)).first->second.fill([] { return 0.0; });
  }
  ASSERT_TRUE(merge(one.what, one.arguments()).ok());
  const auto refused = [&](const Merge& what, const MergeArguments& args, const char* sentence) {
    const Status status = merge(what, args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
  };
  Merge what = one.what;
  what.o_b.shape[3] += 1;
  refused(what, one.arguments(), "o_b: shape is");
  what = one.what;
  what.lse_b.dtype = DType::f64;
  refused(what, one.arguments(), "lse_b: dtype is f64, wanted f32");
  what = one.what;
  what.o_a.dtype = DType::f8e4m3;
  refused(what, one.arguments(), "o_a: dtype is f8e4m3, wanted f32, f16 or bf16");
  MergeArguments args = one.arguments();
  args.o_b = nullptr;
  refused(one.what, args, "o_b: pointer is null");
  args = one.arguments();
  args.o = static_cast<std::byte*>(one.at("o_a").data()) + size_of(one.what.o.dtype);
  refused(one.what, args, "o: pointer");
  const Status gpu = merge(one.what, one.arguments(), on_gpu());
  EXPECT_EQ(gpu.code(), StatusCode::unsupported);
}

// ---------------------------------------------------------------------------------------------
// Append

struct AppendCase {
  Append what;
  std::map<std::string, HostTensor> tensors;

  HostTensor& at(const std::string& name) { return tensors.at(name); }
  bool has(const std::string& name) const { return tensors.contains(name); }
  HostTensor& add(const std::string& name, const TensorDesc& desc) {
    return tensors.emplace(name, HostTensor(desc)).first->second;
  }
  template <class T>
  T* pointer(const std::string& name) {
    return has(name) ? static_cast<T*>(at(name).data()) : nullptr;
  }
  AppendArguments arguments() {
    return {.k_new = at("k_new").data(),
            .v_new = at("v_new").data(),
            .k = at("k").data(),
            .v = at("v").data(),
            .seqlens_kv = pointer<int32_t>("seqlens_kv"),
            .seqlens_new = pointer<int32_t>("seqlens_new"),
            .cu_seqlens_new = pointer<int32_t>("cu_seqlens_new"),
            .page_table = pointer<int32_t>("page_table"),
            .kv_indptr = pointer<int32_t>("kv_indptr"),
            .kv_indices = pointer<int32_t>("kv_indices"),
            .cache_leftpad = pointer<int32_t>("cache_leftpad"),
            .page_status = pointer<int32_t>("page_status"),
            .k_scale = pointer<float>("k_scale"),
            .v_scale = pointer<float>("v_scale"),
            .rope_cos = pointer<float>("rope_cos"),
            .rope_sin = pointer<float>("rope_sin"),
            .q = pointer<void>("q"),
            .q_out = pointer<void>("q_out")};
  }
};

struct Sizes {
  int64_t batch, heads, heads_q, rows, dqk, dv, page, columns, pages;
  bool paged, flat, packed;
};

// Every page has one owner, so that no two rows have one place.
AppendCase random_append(Random& random, Sizes& s) {
  AppendCase one;
  s.batch = random.integer(1, 3), s.heads = random.integer(1, 3);
  s.heads_q = s.heads * random.integer(1, 3), s.rows = random.integer(1, 6);
  s.dqk = 2 * random.integer(1, 24), s.dv = random.integer(1, 40);
  s.paged = random.chance(0.75), s.flat = s.paged && random.chance(0.4);
  s.packed = s.paged && random.chance(0.4);
  s.page = random.pick<int64_t>({1, 2, 5, 8, 16}), s.columns = random.integer(8, 10);
  s.pages = s.batch * s.columns + random.integer(0, 3);
  const DType dtype = random.pick({DType::f32, DType::f16, DType::bf16});
  const bool fp8 = random.chance(0.4);
  const DType cache = fp8 ? random.pick({DType::f8e4m3, DType::f8e5m2}) : dtype;
  Append& what = one.what;
  const int64_t room = s.paged ? s.columns * s.page : 20;
  std::vector<int64_t> counts;
  int64_t total = 0;
  for (int64_t b = 0; b < s.batch; ++b) {
    counts.push_back(random.integer(0, s.rows));
    total += counts.back();
  }
  const auto rows_of = [&](int64_t heads, int64_t width) {
    if (s.packed) return TensorDesc::contiguous(dtype, {total, heads, width});
    return random_layout(random, dtype, s.batch, heads, s.rows, width, false);
  };
  what.k_new = rows_of(s.heads, s.dqk);
  what.v_new = rows_of(s.heads, s.dv);
  for (const auto& [name, desc] : {std::pair{"k_new", what.k_new}, {"v_new", what.v_new}}) {
    one.add(name, desc).fill([&] { return random.normal(); });
  }
  const int64_t lead = s.paged ? s.pages : s.batch, cache_rows = s.paged ? s.page : room;
  what.k = random_layout(random, cache, lead, s.heads, cache_rows, s.dqk, false);
  what.v = random_layout(random, cache, lead, s.heads, cache_rows, s.dv, false);
  for (const auto& [name, desc] : {std::pair{"k", what.k}, {"v", what.v}}) {
    one.add(name, desc).fill([&] { return random.normal(); });
  }
  what.seqlens_kv = i32(s.batch);
  HostTensor& lengths = one.add("seqlens_kv", what.seqlens_kv);
  for (int64_t b = 0; b < s.batch; ++b) {
    lengths.set(b, static_cast<double>(random.integer(0, room - s.rows)));
  }
  if (s.packed) {
    what.cu_seqlens_new = i32(s.batch + 1);
    HostTensor& starts = one.add("cu_seqlens_new", *what.cu_seqlens_new);
    int64_t at = 0;
    for (int64_t b = 0; b <= s.batch; ++b) {
      starts.set(b, static_cast<double>(at));
      if (b < s.batch) at += counts[static_cast<size_t>(b)];
    }
  } else if (random.chance(0.5)) {
    what.seqlens_new = i32(s.batch);
    HostTensor& used = one.add("seqlens_new", *what.seqlens_new);
    for (int64_t b = 0; b < s.batch; ++b) {
      used.set(b, static_cast<double>(counts[static_cast<size_t>(b)]));
    }
  }
  if (s.paged) {
    std::vector<int64_t> order;
    for (int64_t n = 0; n < s.pages; ++n) order.push_back(n);
    for (size_t n = order.size(); n > 1; --n) {
      std::swap(order[n - 1],
                order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(n) - 1))]);
    }
    if (s.flat) {
      what.kv_indptr = i32(s.batch + 1);
      what.kv_indices = i32(s.batch * s.columns);
      HostTensor& starts = one.add("kv_indptr", *what.kv_indptr);
      for (int64_t b = 0; b <= s.batch; ++b) starts.set(b, static_cast<double>(b * s.columns));
    } else {
      what.page_table = TensorDesc::contiguous(DType::i32, {s.batch, s.columns});
    }
    HostTensor& table =
        one.add(s.flat ? "kv_indices" : "page_table", s.flat ? *what.kv_indices : *what.page_table);
    for (int64_t n = 0; n < table.elements(); ++n) {
      table.set(n, static_cast<double>(order[static_cast<size_t>(n)]));
    }
    if (random.chance(0.4)) {
      what.page_status = i32(1);
      one.add("page_status", *what.page_status).set(0, 0);
      if (random.chance(0.5)) {
        table.set(random.integer(0, table.elements() - 1),
                  static_cast<double>(random.pick<int64_t>({-1, s.pages, 1 << 30})));
      }
    }
  }
  if (random.chance(0.3)) {
    what.cache_leftpad = i32(s.batch);
    HostTensor& padding = one.add("cache_leftpad", *what.cache_leftpad);
    for (int64_t b = 0; b < s.batch; ++b) {
      padding.set(b, static_cast<double>(random.integer(0, static_cast<int64_t>(lengths.get(b)))));
    }
  }
  if (fp8) {
    what.kv_scale_block = random.pick<int64_t>({0, 1, 3});
    const int64_t block = what.kv_scale_block == 0 ? cache_rows : what.kv_scale_block;
    for (auto& [name, scale] :
         {std::pair<std::string, std::optional<TensorDesc>*>{"k_scale", &what.k_scale},
          {"v_scale", &what.v_scale}}) {
      if (random.chance(0.2)) continue;
      *scale = TensorDesc::contiguous(
          DType::f32, {random.chance(0.5) ? 1 : lead, random.chance(0.5) ? 1 : s.heads,
                       random.chance(0.5) ? 1 : (cache_rows + block - 1) / block});
      one.add(name, **scale).fill([&] { return 0.25 + random.uniform(); });
    }
  }
  what.interleaved = random.chance(0.5);
  const int64_t rotary = random.chance(0.5) ? s.dqk : 2 * random.integer(1, s.dqk / 2);
  const double kind = random.uniform();
  if (kind < 0.4) {
    const int64_t positions = room + random.integer(0, 4);
    what.rope_cos = what.rope_sin = TensorDesc::contiguous(DType::f32, {positions, rotary / 2});
    for (const char* const name : {"rope_cos", "rope_sin"}) {
      one.add(name, *what.rope_cos).fill([&] { return 2 * random.uniform() - 1; });
    }
  } else if (kind < 0.7) {
    what.rope_base = 10000;
    what.rope_scale = random.chance(0.5) ? 1 : 0.25f;
    what.rotary_dim = rotary == s.dqk ? 0 : rotary;
  }
  if (kind < 0.7 && random.chance(0.6)) {
    what.q = rows_of(s.heads_q, s.dqk);
    what.q_out = rows_of(s.heads_q, s.dqk);
    one.add("q", *what.q).fill([&] { return random.normal(); });
    one.add("q_out", *what.q_out);
  }
  return one;
}

int64_t number(AppendCase& one, const std::string& name, int64_t i) {
  return static_cast<int64_t>(one.at(name).get(i));
}

// The row as it is stored, but for the rounding: rotated in fp64 with fp32 angles.
std::vector<double> rotated(AppendCase& one, std::vector<double> row, int64_t position) {
  const Append& what = one.what;
  const auto dim = static_cast<int64_t>(row.size());
  const int64_t rotary = what.rope_cos        ? 2 * what.rope_cos->shape[1]
                         : what.rope_base > 0 ? (what.rotary_dim == 0 ? dim : what.rotary_dim)
                                              : 0;
  for (int64_t n = 0; n < rotary / 2; ++n) {
    double cos = 0, sin = 0;
    if (what.rope_cos) {
      cos = one.at("rope_cos").get(position * (rotary / 2) + n);
      sin = one.at("rope_sin").get(position * (rotary / 2) + n);
    } else {
      const double angle = static_cast<double>(position) * static_cast<double>(what.rope_scale) /
                           std::pow(static_cast<double>(what.rope_base),
                                    2.0 * static_cast<double>(n) / static_cast<double>(rotary));
      cos = std::cos(angle), sin = std::sin(angle);
    }
    double& x = row[static_cast<size_t>(what.interleaved ? 2 * n : n)];
    double& y = row[static_cast<size_t>(what.interleaved ? 2 * n + 1 : n + rotary / 2)];
    const double old = x;
    x = old * cos - y * sin;
    y = old * sin + y * cos;
  }
  return row;
}

// `size` is the largest element of the row before its rotation, whose two terms may cancel.
double tolerance(DType dtype, double want, double size, bool exact) {
  if (exact) return 0;
  const double step = dtype == DType::f32      ? 2e-6
                      : dtype == DType::f16    ? 1.1e-3
                      : dtype == DType::bf16   ? 8.5e-3
                      : dtype == DType::f8e4m3 ? 0.07
                                               : 0.14;
  return step * std::max(0.02, std::abs(want)) + 4 * 0x1p-24 * size;
}

// Expected contents after an append, of the cache (name "k" or "v") and of everything else in it.
void expect_appended(AppendCase& before, AppendCase& after, const Sizes& s,
                     const std::string& where) {
  const Append& what = before.what;
  std::map<std::string, std::vector<bool>> written;
  for (const char* const name : {"k", "v"}) {
    written[name].assign(static_cast<size_t>(after.at(name).elements()), false);
  }
  bool out_of_range = false;
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t begin = s.packed ? number(before, "cu_seqlens_new", b) : 0;
    int64_t count = s.packed ? number(before, "cu_seqlens_new", b + 1) - begin : s.rows;
    if (before.has("seqlens_new")) count = number(before, "seqlens_new", b);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = number(before, "seqlens_kv", b) + i;
      const int64_t position =
          row - (before.has("cache_leftpad") ? number(before, "cache_leftpad", b) : 0);
      int64_t lead = b, at = row;
      bool has_place = true;
      if (s.paged) {
        lead = number(before, s.flat ? "kv_indices" : "page_table", b * s.columns + row / s.page);
        at = row % s.page;
        has_place = lead >= 0 && lead < s.pages;
        out_of_range = out_of_range || !has_place;
      }
      for (const char* const name : {"k", "v", "q_out"}) {
        const bool query = std::string_view(name) == "q_out";
        if (query ? !before.has("q") : !has_place) continue;
        const std::string source = query ? "q" : std::string(name) + "_new";
        const int64_t width = name[0] == 'v' ? s.dv : s.dqk;
        const int64_t heads = query ? s.heads_q : s.heads;
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t from = s.packed ? (begin + i) * heads + h : (b * heads + h) * s.rows + i;
          std::vector<double> values;
          for (int64_t d = 0; d < width; ++d)
            values.push_back(before.at(source).get(from * width + d));
          double size = 0;
          for (const double value : values) size = std::max(size, std::abs(value));
          if (name[0] != 'v') values = rotated(before, values, position);
          const int64_t cache_rows = what.k.shape[2];
          const int64_t to = query ? from : (lead * heads + h) * cache_rows + at;
          double scale = 1;
          const std::string scale_name = std::string(name) + "_scale";
          if (!query && before.has(scale_name)) {
            const auto& shape = before.at(scale_name).desc().shape;
            const int64_t block = what.kv_scale_block == 0 ? cache_rows : what.kv_scale_block;
            const auto of = [&](size_t d, int64_t n) { return shape[d] == 1 ? int64_t{0} : n; };
            scale = before.at(scale_name)
                        .get((of(0, lead) * shape[1] + of(1, h)) * shape[2] + of(2, at / block));
          }
          HostTensor& target = after.at(name);
          const DType dtype = target.desc().dtype;
          const bool exact = name[0] == 'v' && dtype == what.v_new.dtype;
          for (int64_t d = 0; d < width; ++d) {
            const double want = values[static_cast<size_t>(d)] / scale;
            ASSERT_NEAR(target.get(to * width + d), want,
                        tolerance(dtype, want, size / scale, exact))
                << where << ' ' << name << " entry " << b << " row " << i << " head " << h;
            if (!query) written[name][static_cast<size_t>(to * width + d)] = true;
          }
        }
      }
    }
    for (int64_t i = count; before.has("q") && i < (s.packed ? count : s.rows); ++i) {
      for (int64_t h = 0; h < s.heads_q; ++h) {
        EXPECT_EQ(after.at("q_out").get(((b * s.heads_q + h) * s.rows + i) * s.dqk), 0) << where;
      }
    }
  }
  for (const char* const name : {"k", "v"}) {
    for (size_t n = 0; n < written[name].size(); ++n) {
      if (written[name][n]) continue;
      ASSERT_EQ(after.at(name).get(static_cast<int64_t>(n)),
                before.at(name).get(static_cast<int64_t>(n)))
          << where << ' ' << name << " element " << n;
    }
    EXPECT_TRUE(after.at(name).canaries_intact()) << where;
  }
  if (before.has("page_status")) {
    EXPECT_EQ(after.at("page_status").get(0), out_of_range ? 1 : 0) << where;
  }
}

TEST(Append, WritesTheNewRowsAndNothingElse) {
  Random random(21);
  int wrong_pages = 0;
  for (int n = 0; n < 400; ++n) {
    Sizes s{};
    AppendCase one = random_append(random, s);
    AppendCase before = one;
    const Status status = append(one.what, one.arguments(), on_threads(2));
    ASSERT_TRUE(status.ok()) << n << ' ' << status.message();
    expect_appended(before, one, s, fmt::format("case {}", n));
    if (one.has("page_status") && one.at("page_status").get(0) == 1) ++wrong_pages;
  }
  EXPECT_GT(wrong_pages, 3);
}

// A rotation leaves lengths alone, and products of rotated rows depend on distances alone.
TEST(Append, RotationKeepsProductsOfEqualDistances) {
  for (const bool interleaved : {false, true}) {
    AppendCase one;
    Append& what = one.what;
    what.k_new = what.v_new = TensorDesc::contiguous(DType::f32, {1, 1, 8, 16});
    what.k = what.v = TensorDesc::contiguous(DType::f32, {1, 1, 8, 16});
    what.seqlens_kv = i32(1);
    what.q = what.q_out = what.k_new;
    what.rope_base = 100;
    what.interleaved = interleaved;
    for (const char* const name : {"k_new", "v_new", "k", "v", "q", "q_out"}) {
      one.add(name, what.k_new).fill([] { return 0.0; });
    }
    one.add("seqlens_kv", what.seqlens_kv).set(0, 0);
    Random random(3);
    for (int64_t d = 0; d < 16; ++d) {  // the same query and the same key at each position
      const double q = random.normal(), k = random.normal();
      for (int64_t i = 0; i < 8; ++i)
        one.at("q").set(i * 16 + d, q), one.at("k_new").set(i * 16 + d, k);
    }
    ASSERT_TRUE(append(what, one.arguments()).ok());
    const auto product = [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t d = 0; d < 16; ++d) {
        sum += one.at("q_out").get(i * 16 + d) * one.at("k").get(j * 16 + d);
      }
      return sum;
    };
    for (int64_t distance = 0; distance < 5; ++distance) {
      for (int64_t j = 1; j + distance < 8; ++j) {
        EXPECT_NEAR(product(j + distance, j), product(distance, 0), 1e-4);
      }
    }
    EXPECT_GT(std::abs(product(5, 0) - product(0, 0)), 1e-2);
  }
}

TEST(Append, SaturatesInFp8) {
  AppendCase one;
  Append& what = one.what;
  what.k_new = what.v_new = TensorDesc::contiguous(DType::f32, {1, 1, 1, 4});
  what.k = what.v = TensorDesc::contiguous(DType::f8e4m3, {1, 1, 2, 4});
  what.seqlens_kv = i32(1);
  one.add("k_new", what.k_new);
  one.add("v_new", what.v_new);
  one.add("k", what.k).fill([] { return 0.0; });
  one.add("v", what.v).fill([] { return 0.0; });
  one.add("seqlens_kv", what.seqlens_kv).set(0, 1);
  for (const char* const name : {"k_new", "v_new"}) {
    one.at(name).set(0, 1e6), one.at(name).set(1, -1e6), one.at(name).set(2, kInf);
    one.at(name).set(3, 1.0);
  }
  ASSERT_TRUE(append(what, one.arguments()).ok());
  for (const char* const name : {"k", "v"}) {
    EXPECT_EQ(one.at(name).get(4), 448);
    EXPECT_EQ(one.at(name).get(5), -448);
    EXPECT_EQ(one.at(name).get(6), 448);
    EXPECT_EQ(one.at(name).get(7), 1);
  }
}

TEST(Append, RefusesWhatMakesNoSense) {
  Random random(9);
  Sizes s{};
  AppendCase one = random_append(random, s);
  while (!s.paged || s.flat || s.packed || one.has("page_status") || one.has("cache_leftpad") ||
         !one.what.rope_cos || one.has("seqlens_new")) {
    one = random_append(random, s);
  }
  ASSERT_TRUE(append(one.what, one.arguments()).ok());
  const AppendCase before = one;
  const auto refused = [&](const Append& what, const AppendArguments& args,
                           const std::string& sentence) {
    const Status status = append(what, args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_NE(status.message().find(sentence), std::string::npos) << status.message();
    for (const char* const name : {"k", "v"}) {
      EXPECT_EQ(std::memcmp(before.tensors.at(name).memory().data(), one.at(name).memory().data(),
                            one.at(name).memory().size()),
                0)
          << sentence;
    }
  };
  const int64_t room = s.columns * s.page;
  one.at("seqlens_kv").set(0, static_cast<double>(room - s.rows + 1));
  refused(one.what, one.arguments(),
          fmt::format("k: entry 0 has {} rows in use and {} new ones, wanted at most {} in all",
                      room - s.rows + 1, s.rows, room));
  one.at("seqlens_kv").set(0, -1);
  refused(one.what, one.arguments(),
          fmt::format("seqlens_kv: entry 0 is -1, wanted 0 to {}", room));
  one.at("seqlens_kv").set(0, 0);
  one.at("page_table").set(0, -1);
  refused(one.what, one.arguments(),
          fmt::format("page_table: page 0 of entry 0 is -1, wanted 0 to {}", s.pages - 1));
  one.at("page_table").set(0, 0);
  Append what = one.what;
  what.rope_sin.reset();
  refused(what, one.arguments(), "rope_sin: is missing, wanted both rope_cos and rope_sin");
  what = one.what;
  what.rope_base = 10;
  refused(what, one.arguments(), "rope_base: is 10, wanted 0 with rope_cos and rope_sin");
  what = one.what;
  what.k_new.dtype = DType::i32;
  refused(what, one.arguments(), "dtype");
  what = one.what;
  what.cu_seqlens_new = i32(s.batch + 1);
  refused(what, one.arguments(), "k_new: rank is 4, wanted 3");
  AppendArguments args = one.arguments();
  args.k_new = args.k;
  refused(one.what, args, "k: pointer");
  EXPECT_EQ(append(one.what, one.arguments(), on_gpu()).code(), StatusCode::unsupported);
}

TEST(Append, OutputsHaveMemoryOfTheirOwn) {
  Random random(10);
  Sizes s{};
  AppendCase one = random_append(random, s);
  while (!one.has("q") || !one.what.rope_cos || !s.paged || s.flat) one = random_append(random, s);
  ASSERT_TRUE(append(one.what, one.arguments()).ok());
  const auto refused = [&](const char* output, const char* other, const auto& change) {
    AppendArguments args = one.arguments();
    change(args);
    const Status status = append(one.what, args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_TRUE(status.message().starts_with(fmt::format("{}: pointer", output)) &&
                status.message().find(fmt::format("overlaps the memory of {},", other)) !=
                    std::string::npos)
        << output << ", " << other << ": " << status.message();
  };
  using Args = AppendArguments&;
  refused("k", "v", [](Args a) { a.v = a.k; });
  refused("k", "q_out", [](Args a) { a.q_out = a.k; });
  refused("q_out", "k_new", [](Args a) { a.q_out = const_cast<void*>(a.k_new); });
  refused("q_out", "rope_sin", [](Args a) { a.q_out = const_cast<float*>(a.rope_sin); });
  refused("v", "v_new", [](Args a) { a.v_new = a.v; });
  refused("k", "rope_cos", [](Args a) { a.rope_cos = static_cast<const float*>(a.k); });
  refused("v", "page_table", [](Args a) { a.page_table = static_cast<const int32_t*>(a.v); });
}

}  // namespace
}  // namespace flashcore
