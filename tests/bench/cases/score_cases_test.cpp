// The problems with hard scores work: plain fp32 sums in any order pass all gates, and the mistakes
// that they target fail.
#include "bench/cases/score_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "problem/dtype.hpp"
#include "problem/problem.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::ScoreCase;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504f;

// A way to compute attention, right or wrong.
struct Manner {
  bool backwards = false;       // order of sums
  bool rounds_maximum = false;  // log2(e) times the maximum, before the subtraction
  bool exponential_tanh = false;
  DType probabilities = DType::f32;  // type of probabilities before V, times 32 and
                                     // relative to the largest of their 1,024 keys
};

float dot(const std::vector<float>& a, const std::vector<float>& b, bool backwards) {
  float sum = 0;
  for (size_t n = 0; n < a.size(); ++n) {
    const size_t d = backwards ? a.size() - 1 - n : n;
    sum += a[d] * b[d];
  }
  return sum;
}

float capped(float s, float cap, const Manner& manner) {
  if (cap == 0) return s;
  if (!manner.exponential_tanh) return cap * std::tanh(s / cap);
  return cap * (1 - 2 / (1 + std::exp(2 * (s / cap))));
}

// The rows of one head of Q, K or V.
using Rows = std::vector<std::vector<float>>;

Rows rows_of(DType dtype, const void* data, int64_t first, int64_t rows, int64_t row_stride,
             int64_t width) {
  Rows out(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t d = 0; d < width; ++d) {
      const double value = load_element(dtype, data, first + r * row_stride + d);
      out[static_cast<size_t>(r)].push_back(static_cast<float>(value));
    }
  }
  return out;
}

class PlainFp32 {
 public:
  PlainFp32(HostProblem& host, const Manner& manner)
      : p_(*resolve(host.problem)), args_(host.arguments()), manner_(manner) {}

  void run() {
    for (int64_t b = 0; b < p_.batch; ++b) {
      const Sequence s = sequence_of(p_, args_, b);
      for (int64_t h = 0; h < p_.heads_q; ++h) {
        const auto load = [&](const void* data, const RowStrides& at, int64_t head, int64_t rows,
                              int64_t width) {
          return rows_of(p_.dtype, data, at.at(b, head, 0), rows, at.row, width);
        };
        q_ = load(args_.q, p_.q, h, p_.seqlen_q, p_.head_dim_qk);
        k_ = load(args_.k, p_.k, p_.kv_head(h), p_.seqlen_kv, p_.head_dim_qk);
        v_ = load(args_.v, p_.v, p_.kv_head(h), p_.seqlen_kv, p_.head_dim_v);
        for (int64_t i = 0; i < p_.seqlen_q; ++i) row(s, b, h, i);
      }
    }
  }

 private:
  float score(const Sequence& s, int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (p_.mask.present && static_cast<const uint8_t*>(args_.mask)[p_.mask.at(b, h, i, j)] == 0) {
      return -kInf;
    }
    const float product =
        dot(q_[static_cast<size_t>(i)], k_[static_cast<size_t>(j)], manner_.backwards);
    float x = capped(product * p_.softmax_scale, p_.softcap, manner_);
    if (p_.bias.present) {
      x += static_cast<float>(load_element(p_.bias.dtype, args_.bias, p_.bias.at(b, h, i, j)));
    }
    if (p_.alibi_slopes.present) {
      x -= args_.alibi_slopes[p_.alibi_slopes.at(b, h)] *
           static_cast<float>(std::abs(i + s.offset - j));
    }
    return x;
  }

  void row(const Sequence& s, int64_t b, int64_t h, int64_t i) const {
    const KeyRange keys = visible_keys(s, p_.band, i);
    const float sink = p_.sinks.present ? args_.sinks[p_.sinks.at(0, h)] : -kInf;
    std::vector<float> scores;
    for (int64_t j = keys.begin; j < keys.end; ++j) scores.push_back(score(s, b, h, i, j));
    float largest = sink;
    for (const float x : scores) largest = x > largest || std::isnan(x) ? x : largest;
    const auto exponential = [&](float x) {
      if (largest == -kInf) return 0.0f;
      return manner_.rounds_maximum ? std::exp2(std::fma(x, kLog2E, -(largest * kLog2E)))
                                    : std::exp(x - largest);
    };
    const bool any = std::any_of(scores.begin(), scores.end(), [](float x) { return x != -kInf; });
    float sum = exponential(sink), rounded_sum = sum;
    std::vector<float> o(static_cast<size_t>(p_.head_dim_v));
    for (size_t n = 0; n < scores.size(); ++n) {
      const float exact = exponential(scores[n]);
      const float weight = rounded(exact, scores, n, exponential);
      sum += exact;
      rounded_sum += weight;
      if (weight == 0) continue;
      const std::vector<float>& v = v_[static_cast<size_t>(keys.begin) + n];
      for (size_t d = 0; d < o.size(); ++d) o[d] += weight * v[d];
    }
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      store_element(p_.o_dtype, args_.o, p_.o.at(b, h, i) + d,
                    any ? o[static_cast<size_t>(d)] / rounded_sum : 0);
    }
    static_cast<float*>(args_.lse)[p_.lse.at(b, h, i)] = any ? largest + std::log(sum) : sink;
  }

  // Sums scores[n], whose exponential is `weight`. Groups are counted from the last key.
  template <class Exponential>
  float rounded(float weight, const std::vector<float>& scores, size_t n,
                const Exponential& exponential) const {
    if (manner_.probabilities == DType::f32 || weight == 0) return weight;
    constexpr size_t kGroup = 1024;
    const size_t end = scores.size() - (scores.size() - 1 - n) / kGroup * kGroup;
    const size_t begin = end > kGroup ? end - kGroup : 0;
    const float most = exponential(*std::max_element(scores.begin() + static_cast<int64_t>(begin),
                                                     scores.begin() + static_cast<int64_t>(end)));
    std::array<unsigned char, 8> stored{};
    store_element(manner_.probabilities, stored.data(), 0, 32.0 * weight / most);
    return static_cast<float>(load_element(manner_.probabilities, stored.data(), 0) / 32 * most);
  }

  ForwardProblem p_;
  Arguments args_;
  Manner manner_;
  Rows q_, k_, v_;  // the current head's rows
};

bench::Verdict judge(const ScoreCase& one, const Manner& manner) {
  HostProblem host = bench::fill(one);
  const Result<bench::Reference> reference = bench::score_reference(one, host);
  EXPECT_TRUE(reference.ok()) << reference.status().message();
  PlainFp32(host, manner).run();
  return bench::judge(host, *reference);
}

TEST(ScoreCases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ScoreCase& one : bench::score_cases()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
  }
}

TEST(ScoreCases, Fp32DecidesThem) {
  bool backwards = false;  // alternates
  for (const ScoreCase& one : problems_of(bench::score_cases())) {
    const bench::Verdict verdict = judge(one, {.backwards = backwards});
    EXPECT_TRUE(verdict.passed) << one.name << ": " << verdict.failure;
    backwards = !backwards;
  }
}

// Returns whether one of the cases with this prefix fails.
bool one_fails(const std::string& prefix, const Manner& manner) {
  const std::vector<ScoreCase> all = bench::score_cases();
  return std::any_of(all.begin(), all.end(), [&](const ScoreCase& one) {
    return one.name.starts_with(prefix) && !judge(one, manner).passed;
  });
}

// e4m3 has three bits of fraction, e5m2 two.
TEST(ScoreCases, TakeProbabilitiesOfE4m3AndNoneOfFewerBits) {
  std::vector<ScoreCase> fp8 = bench::score_cases();
  std::erase_if(fp8, [](const ScoreCase& one) { return !one.name.starts_with("fp8/"); });
  ASSERT_FALSE(fp8.empty());
  for (const ScoreCase& one : problems_of(std::move(fp8))) {
    const bench::Verdict verdict = judge(one, {.probabilities = DType::f8e4m3});
    EXPECT_TRUE(verdict.passed) << one.name << ": " << verdict.failure;
  }
  EXPECT_TRUE(one_fails("fp8/normal/", {.probabilities = DType::f8e5m2}));
}

TEST(ScoreCases, FailAMaximumThatIsRoundedBeforeItIsSubtracted) {
  for (const char* const prefix : {"large/f16/", "large/bf16/", "bias/f32/f32/-1e11",
                                   "bias/f32/f32/-1e30", "bias/f16/f32/finfo.min", "alibi/f32/"}) {
    EXPECT_TRUE(one_fails(prefix, {.rounds_maximum = true})) << prefix;
  }
}

TEST(ScoreCases, FailATanhThatIsOffNearZero) {
  for (const char* const cap : {"1e+05", "1e+06", "1e+08", "1e+30", "3.4e+38"}) {
    const std::string prefix = "softcap/f16/" + std::string(cap) + "/normal";
    EXPECT_TRUE(one_fails(prefix, {.exponential_tanh = true})) << prefix;
  }
}

}  // namespace
}  // namespace flashcore
