#include "tests/cpu/quantize_case.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bench/cases/random_layout.hpp"
#include "problem/dtype.hpp"

namespace flashcore::testing {
namespace {

using bench::HostTensor;
using bench::Random;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Entry {
  int64_t begin = 0, all = 0, in_use = 0;
};

std::vector<Entry> entries_of(QuantizeCase& one) {
  std::vector<Entry> entries;
  const bool packed = one.what.cu_seqlens.has_value();
  const int64_t batch = packed ? one.what.cu_seqlens->shape[0] - 1 : one.what.x.shape[0];
  for (int64_t b = 0; b < batch; ++b) {
    Entry entry{0, packed ? 0 : one.what.x.shape[2], 0};
    if (packed) {
      entry.begin = static_cast<int64_t>(one.at("cu_seqlens").get(b));
      entry.all = static_cast<int64_t>(one.at("cu_seqlens").get(b + 1)) - entry.begin;
    }
    entry.in_use = entry.all;
    if (one.what.seqlens) {
      entry.in_use = std::min(entry.in_use, static_cast<int64_t>(one.at("seqlens").get(b)));
    }
    entries.push_back(entry);
  }
  return entries;
}

// The row-major index of element (b, h, row of the entry, d).
int64_t element(const QuantizeCase& one, const Entry& entry, int64_t b, int64_t h, int64_t r,
                int64_t d) {
  const auto& shape = one.what.x.shape;
  if (one.what.cu_seqlens) return ((entry.begin + r) * shape[1] + h) * shape[2] + d;
  return ((b * shape[1] + h) * shape[2] + r) * shape[3] + d;
}

int64_t scale_element(const QuantizeCase& one, int64_t b, int64_t h, int64_t r) {
  const TensorDesc& scale = one.what.scale;
  const int64_t blocks = scale.rank == 3 ? scale.shape[2] : 1;
  const int64_t n = blocks == 1 ? 0 : r / one.what.scale_block;
  return ((scale.shape[0] == 1 ? 0 : b) * scale.shape[1] + (scale.shape[1] == 1 ? 0 : h)) * blocks +
         n;
}

void fill_special(QuantizeCase& one, Random& random) {
  HostTensor& x = one.at("x");
  const double size = std::exp2(static_cast<double>(random.integer(-30, 14)));
  const double offset = random.chance(0.3) ? size * random.normal() * 3 : 0;
  x.fill([&] { return offset + size * random.normal(); });
  const double special = random.chance(0.3) ? 0.01 : 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    if (random.chance(special)) x.set(i, random.pick({kNaN, -kNaN, kInf, -kInf, 0.0, -0.0}));
  }
  const int64_t width = one.what.x.shape[one.what.cu_seqlens ? 2 : 3];
  const double zeros = random.chance(0.2) ? 0.2 : 0;
  for (int64_t i = 0; i < x.elements(); i += width) {
    if (!random.chance(zeros)) continue;
    for (int64_t d = 0; d < width; ++d) x.set(i + d, 0);
  }
  const std::vector<Entry> entries = entries_of(one);
  for (size_t b = 0; b < entries.size(); ++b) {  // rows not in use may hold anything
    for (int64_t r = entries[b].in_use; r < entries[b].all; ++r) {
      for (int64_t h = 0; h < one.what.x.shape[1]; ++h) {
        for (int64_t d = 0; d < width; ++d) {
          x.set(element(one, entries[b], static_cast<int64_t>(b), h, r, d), kNaN);
        }
      }
    }
  }
}

}  // namespace

std::string QuantizeCase::text() const {
  const auto shape = [](const TensorDesc& tensor) {
    return fmt::format("{}",
                       fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ","));
  };
  return fmt::format("{} [{}] to {}, scale [{}] of {} rows{}{}", to_string(what.x.dtype),
                     shape(what.x), to_string(what.x_out.dtype), shape(what.scale),
                     what.scale_block, what.mean ? ", mean" : "", what.seqlens ? ", seqlens" : "");
}

QuantizeCase make_quantize(const Quantize& what, uint64_t seed) {
  QuantizeCase one;
  one.what = what;
  Random random(seed);
  one.add_described();
  one.at("x").fill([&] { return random.normal(); });
  return one;
}

QuantizeCase random_quantize(Random& random, int64_t most_rows) {
  Quantize what;
  const int64_t batch = random.integer(1, 3), heads = random.integer(1, 4),
                rows = random.integer(0, most_rows), width = random.integer(1, 140);
  const DType dtype = random.pick({DType::f32, DType::f16, DType::bf16});
  const DType out = random.pick({DType::f8e4m3, DType::f8e5m2});
  const bool packed = random.chance(0.3);
  std::vector<int64_t> starts = {0};
  for (int64_t b = 0; b < batch; ++b) starts.push_back(starts.back() + random.integer(0, rows));
  int64_t longest = rows;
  if (packed) {
    const int64_t total = starts.back();
    what.x = TensorDesc::contiguous(dtype, {total, heads, width});
    what.x_out = TensorDesc::contiguous(out, {total, heads, width});
    what.cu_seqlens = TensorDesc::contiguous(DType::i32, {batch + 1});
    if (random.chance(0.5)) what.max_seqlen = std::min(rows, total);
    longest = what.max_seqlen == 0 ? total : what.max_seqlen;
  } else {
    what.x = bench::random_layout(random, dtype, batch, heads, rows, width, random.chance(0.5));
    what.x_out = bench::random_layout(random, out, batch, heads, rows, width, random.chance(0.5));
  }
  if (random.chance(0.4)) what.seqlens = TensorDesc::contiguous(DType::i32, {batch});
  if (random.chance(0.4)) {
    what.mean = TensorDesc::contiguous(DType::f32, {batch, heads, width});
  }
  const int64_t batches = random.chance(0.3) ? 1 : batch,
                all_heads = random.chance(0.3) ? 1 : heads;
  if (random.chance(0.3)) {
    what.scale = TensorDesc::contiguous(DType::f32, {batches, all_heads});
  } else {
    what.scale_block = random.pick<int64_t>({0, 1, 1, 7, 64, 100, 256, 300});
    const int64_t block = what.scale_block == 0 ? std::max<int64_t>(longest, 1) : what.scale_block;
    const int64_t blocks = random.chance(0.2) ? 1 : (longest + block - 1) / block;
    what.scale = TensorDesc::contiguous(DType::f32, {batches, all_heads, blocks});
  }
  QuantizeCase one = make_quantize(what, random.bits());
  if (packed) {
    for (size_t b = 0; b < starts.size(); ++b) {
      one.at("cu_seqlens").set(static_cast<int64_t>(b), static_cast<double>(starts[b]));
    }
  }
  for (int64_t b = 0; what.seqlens && b < batch; ++b) {
    one.at("seqlens").set(b, static_cast<double>(random.integer(0, longest)));
  }
  fill_special(one, random);
  return one;
}

void expect_quantized(QuantizeCase& one, const std::string& where) {
  const Quantize& what = one.what;
  const int64_t heads = what.x.shape[1], width = what.x.shape[what.cu_seqlens ? 2 : 3];
  const double largest = what.x_out.dtype == DType::f8e4m3 ? 448 : 57344;
  const std::vector<Entry> entries = entries_of(one);
  const auto batch = static_cast<int64_t>(entries.size());
  HostTensor &x = one.at("x"), &out = one.at("x_out"), &scale = one.at("scale");

  for (int64_t b = 0; what.mean && b < batch; ++b) {
    const Entry& entry = entries[static_cast<size_t>(b)];
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < width; ++d) {
        double sum = 0, size = 0;
        for (int64_t r = 0; r < entry.in_use; ++r) {
          const double value = x.get(element(one, entry, b, h, r, d));
          if (std::isfinite(value)) sum += value, size += std::abs(value);
        }
        const auto count = static_cast<double>(std::max<int64_t>(entry.in_use, 1));
        const double got = one.at("mean").get((b * heads + h) * width + d), mean = sum / count;
        // fp64 sums in any order, then one rounding.
        ASSERT_NEAR(got, mean, 0x1p-23 * std::abs(mean) + 0x1p-45 * size / count) << where;
      }
    }
  }
  // y = x - mean, with the computed mean.
  const auto y_of = [&](int64_t b, int64_t h, int64_t r, int64_t d) {
    const Entry& entry = entries[static_cast<size_t>(b)];
    const auto value = static_cast<float>(x.get(element(one, entry, b, h, r, d)));
    if (!what.mean) return value;
    return value - static_cast<float>(one.at("mean").get((b * heads + h) * width + d));
  };
  const auto each = [&](const auto& body) {
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t r = 0; r < entries[static_cast<size_t>(b)].all; ++r) body(b, h, r);
      }
    }
  };
  std::vector<float> amax(static_cast<size_t>(scale.elements()));
  each([&](int64_t b, int64_t h, int64_t r) {
    if (r >= entries[static_cast<size_t>(b)].in_use) return;
    float& group = amax[static_cast<size_t>(scale_element(one, b, h, r))];
    for (int64_t d = 0; d < width; ++d) {
      const float y = y_of(b, h, r, d);
      if (std::isfinite(y)) group = std::max(group, std::abs(y));
    }
  });
  for (int64_t i = 0; i < scale.elements(); ++i) {
    const float group = amax[static_cast<size_t>(i)];
    const float wanted = group == 0 ? 1 : std::max(group / static_cast<float>(largest), 0x1p-126f);
    ASSERT_EQ(scale.get(i), static_cast<double>(wanted)) << where << ", scale " << i;
  }
  int wrong = 0;
  each([&](int64_t b, int64_t h, int64_t r) {
    const Entry& entry = entries[static_cast<size_t>(b)];
    const auto divisor = static_cast<float>(scale.get(scale_element(one, b, h, r)));
    for (int64_t d = 0; d < width && wrong < 3; ++d) {
      const double got = out.get(element(one, entry, b, h, r, d));
      const float y = r < entry.in_use ? y_of(b, h, r, d) : 0;
      double wanted = 0;
      store_element(what.x_out.dtype, &wanted, 0, static_cast<double>(y / divisor));
      wanted = load_element(what.x_out.dtype, &wanted, 0);
      if (std::isinf(y)) wanted = what.x_out.dtype == DType::f8e4m3 ? kNaN : static_cast<double>(y);
      const bool same = std::isnan(wanted)
                            ? std::isnan(got)
                            : got == wanted && std::signbit(got) == std::signbit(wanted);
      if (same) continue;
      ++wrong;
      ADD_FAILURE() << where << ": entry " << b << ", head " << h << ", row " << r << ", column "
                    << d << " is " << got << ", wanted " << wanted << " of " << y << " / "
                    << divisor;
    }
  });
  for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(tensor.canaries_intact()) << name;
}

}  // namespace flashcore::testing
