// Quantisation in strips: one task converts some rows of an entry, of one head. If every strip has
// its own scale groups, it is read once; otherwise a first pass finds the largest magnitudes, and a
// second one converts.
//
// A largest magnitude does not depend on the order, and a mean is the sum over fixed strips in a
// fixed order: so the bits do not depend on the threads.
#include "cpu/quantize.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/parallel.hpp"
#include "cpu/simd/kernels.hpp"
#include "cpu/target.hpp"
#include "problem/fp8_scale.hpp"

namespace flashcore::cpu {
namespace {

constexpr int64_t kRowsPerStrip = 256;

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Some rows of an entry. The first `in_use` of them are in use.
struct Strip {
  int64_t entry = 0;
  int64_t first = 0;  // within the entry
  int64_t all = 0;
  int64_t in_use = 0;
  int64_t blocks_before = 0;  // blocks of earlier strips
  int64_t blocks = 0;         // blocks with a row in use
};

class QuantizeRun {
 public:
  QuantizeRun(const QuantizeProblem& problem, const QuantizeArguments& args, int threads)
      : p_(problem),
        args_(args),
        threads_(threads),
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the caller has checked that kernels exist.
        kernels_(*kernels_of(target_for(false)).quantize),
        largest_number_(problem.out_dtype == DType::f8e4m3 ? kLargestE4M3 : kLargestE5M2),
        block_(problem.scale_blocks > 1 ? problem.scale_block : std::max<int64_t>(p_.rows, 1)) {
    for (int64_t b = 0; b < p_.batch; ++b) entries_.push_back(entry_rows(p_, args, b));
  }

  void run() const {
    if (p_.has_mean) find_means();
    fill_scales();
    const std::vector<Strip> strips =
        cut(block_ < kRowsPerStrip ? kRowsPerStrip / block_ * block_ : kRowsPerStrip);
    if (has_own_groups()) {
      each(strips, [&](const Strip& strip, int64_t h) {
        for (int64_t n = 0; n < strip.blocks; ++n) {
          scale_of(strip, n, h) = scale_for(largest(strip, n, h));
        }
        convert(strip, h);
      });
      return;
    }
    find_scales(strips);
    each(strips, [&](const Strip& strip, int64_t h) { convert(strip, h); });
  }

 private:
  // Returns whether each group lies within one strip of one head.
  bool has_own_groups() const {
    return p_.scale_batches == p_.batch && p_.scale_heads == p_.heads &&
           (block_ <= kRowsPerStrip || p_.rows <= kRowsPerStrip);
  }

  // A strip holds rows of several blocks only if it holds these blocks as a whole.
  std::vector<Strip> cut(int64_t rows) const {
    std::vector<Strip> strips;
    int64_t blocks = 0;
    for (int64_t b = 0; b < p_.batch; ++b) {
      const EntryRows& entry = entries_[static_cast<size_t>(b)];
      for (int64_t first = 0; first < entry.all;) {
        const int64_t to_block = rows < block_ ? block_ - first % block_ : rows;
        const int64_t all = std::min({rows, to_block, entry.all - first});
        const int64_t in_use = std::clamp<int64_t>(entry.in_use - first, 0, all);
        strips.push_back({b, first, all, in_use, blocks, divide_up(in_use, block_)});
        blocks += strips.back().blocks;
        first += all;
      }
    }
    return strips;
  }

  template <class Body>
  void each(const std::vector<Strip>& strips, const Body& body) const {
    parallel_for(static_cast<int64_t>(strips.size()) * p_.heads, threads_, [&](int64_t task) {
      // Heads are innermost, because they are adjacent in memory if rows are [.., rows, heads, width].
      body(strips[static_cast<size_t>(task / p_.heads)], task % p_.heads);
    });
  }

  QuantizeRows rows_of(const Strip& strip, int64_t h, int64_t first, int64_t rows) const {
    const int64_t row = entries_[static_cast<size_t>(strip.entry)].begin + strip.first + first;
    return {.dtype = p_.dtype,
            .x = args_.x,
            .first = p_.x.at(strip.entry, h, row),
            .stride = p_.x.row,
            .rows = rows,
            .width = p_.head_dim,
            .mean = p_.has_mean ? args_.mean + p_.mean.at(strip.entry, h, 0) : nullptr};
  }

  QuantizeRows rows_of_block(const Strip& strip, int64_t n, int64_t h) const {
    const int64_t first = n * block_;
    return rows_of(strip, h, first, std::min(block_, strip.in_use - first));
  }

  float largest(const Strip& strip, int64_t n, int64_t h) const {
    return kernels_.largest(rows_of_block(strip, n, h));
  }

  float scale_for(float largest) const { return fp8_scale(largest, largest_number_); }

  float& scale_of(const Strip& strip, int64_t n, int64_t h) const {
    return args_.scale[p_.scale.at(strip.entry, h, strip.first / block_ + n)];
  }

  template <class Body>
  void each_scale(const Body& body) const {
    for (int64_t b = 0; b < p_.scale_batches; ++b) {
      for (int64_t h = 0; h < p_.scale_heads; ++h) {
        for (int64_t n = 0; n < p_.scale_blocks; ++n) body(args_.scale[p_.scale.at(b, h, n)]);
      }
    }
  }

  void fill_scales() const {
    each_scale([](float& scale) { scale = 1; });
  }

  // The scales hold the largest magnitudes until all of them are known.
  void find_scales(const std::vector<Strip>& strips) const {
    const int64_t blocks = strips.empty() ? 0 : strips.back().blocks_before + strips.back().blocks;
    std::vector<float> found(static_cast<size_t>(blocks * p_.heads));
    each(strips, [&](const Strip& strip, int64_t h) {
      for (int64_t n = 0; n < strip.blocks; ++n) {
        found[static_cast<size_t>((strip.blocks_before + n) * p_.heads + h)] = largest(strip, n, h);
      }
    });
    each_scale([](float& scale) { scale = 0; });
    for (const Strip& strip : strips) {
      for (int64_t n = 0; n < strip.blocks; ++n) {
        for (int64_t h = 0; h < p_.heads; ++h) {
          float& scale = scale_of(strip, n, h);
          scale =
              std::max(scale, found[static_cast<size_t>((strip.blocks_before + n) * p_.heads + h)]);
        }
      }
    }
    each_scale([&](float& scale) { scale = scale_for(scale); });
  }

  void convert(const Strip& strip, int64_t h) const {
    const int64_t row = entries_[static_cast<size_t>(strip.entry)].begin + strip.first;
    QuantizedRows out{p_.out_dtype, args_.x_out, p_.x_out.at(strip.entry, h, row), p_.x_out.row};
    for (int64_t n = 0; n < strip.blocks; ++n) {
      const QuantizeRows rows = rows_of_block(strip, n, h);
      kernels_.convert(rows, scale_of(strip, n, h), out);
      out.first += rows.rows * out.stride;
    }
    for (int64_t r = strip.in_use; r < strip.all; ++r) {
      std::memset(static_cast<uint8_t*>(args_.x_out) + out.first, 0,
                  static_cast<size_t>(p_.head_dim));
      out.first += out.stride;
    }
  }

  void find_means() const {
    std::vector<Strip> strips;
    std::vector<size_t> begin;  // index of each entry's first strip
    for (int64_t b = 0; b < p_.batch; ++b) {
      begin.push_back(strips.size());
      const int64_t in_use = entries_[static_cast<size_t>(b)].in_use;
      for (int64_t first = 0; first < in_use; first += kRowsPerStrip) {
        const int64_t rows = std::min(kRowsPerStrip, in_use - first);
        strips.push_back({b, first, rows, rows, 0, 0});
      }
    }
    begin.push_back(strips.size());
    const auto width = static_cast<size_t>(p_.head_dim);
    std::vector<double> sums(strips.size() * static_cast<size_t>(p_.heads) * width);
    const auto sum_of = [&](size_t strip, int64_t h) {
      return sums.data() + (strip * static_cast<size_t>(p_.heads) + static_cast<size_t>(h)) * width;
    };
    each(strips, [&](const Strip& strip, int64_t h) {
      QuantizeRows rows = rows_of(strip, h, 0, strip.in_use);
      rows.mean = nullptr;
      kernels_.add(rows, sum_of(static_cast<size_t>(&strip - strips.data()), h));
    });
    parallel_for(p_.batch * p_.heads, threads_, [&](int64_t task) {
      const int64_t b = task / p_.heads, h = task % p_.heads;
      float* const mean = args_.mean + p_.mean.at(b, h, 0);
      const auto count =
          static_cast<double>(std::max<int64_t>(1, entries_[static_cast<size_t>(b)].in_use));
      for (size_t d = 0; d < width; ++d) {
        double sum = 0;
        for (size_t n = begin[static_cast<size_t>(b)]; n < begin[static_cast<size_t>(b) + 1]; ++n) {
          sum += sum_of(n, h)[d];
        }
        mean[d] = static_cast<float>(sum / count);
      }
    });
  }

  const QuantizeProblem& p_;
  const QuantizeArguments& args_;
  const int threads_;
  const QuantizeKernels& kernels_;
  const float largest_number_;
  const int64_t block_;  // rows per scale
  std::vector<EntryRows> entries_;
};

}  // namespace

void quantize(const QuantizeProblem& problem, const QuantizeArguments& args, int threads) {
  QuantizeProblem p = problem;
  const bool has_elements =
      p.heads > 0 && p.head_dim > 0 && (p.packed ? p.total > 0 : p.batch > 0 && p.rows > 0);
  // Without elements, extents may be of any size. What remains are scales of 1 and means of 0.
  if (!has_elements) {
    for (int64_t b = 0; b < p.scale_batches; ++b) {
      for (int64_t h = 0; h < p.scale_heads; ++h) {
        for (int64_t n = 0; n < p.scale_blocks; ++n) args.scale[p.scale.at(b, h, n)] = 1;
      }
    }
    if (!p.has_mean || p.head_dim == 0) return;
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t h = 0; h < p.heads; ++h) {
        std::fill_n(args.mean + p.mean.at(b, h, 0), p.head_dim, 0.0f);
      }
    }
    return;
  }
  QuantizeRun(p, args, threads).run();
}

}  // namespace flashcore::cpu
