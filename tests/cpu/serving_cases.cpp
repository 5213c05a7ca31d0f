#include "tests/cpu/serving_cases.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/random_layout.hpp"
#include "flashcore/quantize.hpp"
#include "problem/transposed.hpp"

namespace flashcore::testing {
namespace {

using bench::random_layout;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

int64_t number(AppendCase& one, const std::string& name, int64_t i) {
  return static_cast<int64_t>(one.at(name).get(i));
}

// The row as stored, before rounding: rotated in fp64 with fp32 angles.
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

}  // namespace

// ---------------------------------------------------------------------------------------------
// Merge

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
  one.add_described();
  for (const char* const name : {"o_a", "o_b"}) one.at(name).fill([&] { return random.normal(); });
  for (const auto& [lse, o] : {std::pair{"lse_a", "o_a"}, {"lse_b", "o_b"}}) {
    HostTensor& values = one.at(lse);
    for (int64_t i = 0; i < values.elements(); ++i) {
      values.set(i, 3 * random.normal() + (random.chance(0.05) ? 400 : 0));
      if (random.chance(0.03)) values.set(i, random.pick({kInf, kNaN}));
      if (!random.chance(0.1)) continue;
      values.set(i, -kInf);  // its O must not matter
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
    if (std::isnan(a) || std::isnan(b) || a + b == kInf) {  // one is +inf, the other is not -inf
      if (one.what.lse) {
        EXPECT_TRUE(std::isnan(one.at("lse").get(i))) << where;
      }
      for (int64_t d = 0; d < width; ++d) {
        ASSERT_TRUE(std::isnan(one.at("o").get(i * width + d))) << where << ", row " << i;
      }
      continue;
    }
    const double top = std::max(a, b);
    const double lse =
        std::isinf(top) ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
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
        const auto weight =
            part == lse ? 1.0 : static_cast<double>(static_cast<float>(std::exp(part - lse)));
        if (lse != -kInf && weight > 0) want += weight * one.at(o).get(i * width + d);
      }
      const double step = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
      ASSERT_NEAR(one.at("o").get(i * width + d), want, step * std::max(1.0, std::abs(want)))
          << where << ", row " << i << ", column " << d;
    }
  }
  for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(tensor.canaries_intact()) << name;
}

// ---------------------------------------------------------------------------------------------
// Append

AppendCase random_append(Random& random, Sizes& s, int64_t least_rows) {
  AppendCase one;
  s.batch = random.integer(1, 3), s.heads = random.integer(1, 3);
  s.heads_q = s.heads * random.integer(1, 3), s.rows = random.integer(1, 6);
  // If lengths differ, an entry has half of its rows on average.
  if (least_rows > 0) s.rows = 6, s.batch = least_rows / 2;
  // Half of them have rows of whole 16-byte chunks, which kernels copy at once.
  const bool chunks = random.chance(0.5);
  s.dqk = chunks ? 16 * random.integer(1, 3) : 2 * random.integer(1, 24);
  s.dv = chunks ? 16 * random.integer(1, 3) : random.integer(1, 40);
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

AppendCase with_transposed_v(const AppendCase& rows) {
  AppendCase out = rows;
  const auto& shape = rows.what.v.shape;
  out.what.v_transposed = true;
  out.what.v = TensorDesc::contiguous(rows.what.v.dtype,
                                      {shape[0], shape[1], shape[3], columns_of_keys(shape[2])});
  out.tensors.erase("v");
  HostTensor& v = out.add("v", out.what.v);
  const Status status =
      transpose_v(rows.what.v, rows.tensors.find("v")->second.data(), out.what.v, v.data());
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

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

}  // namespace flashcore::testing
