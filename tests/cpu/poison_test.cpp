// NaN and infinity do not spread, in every CPU kernel, on random problems:
//   - hidden keys are filled with them: no bit of the outputs changes;
//   - one key that some queries see is filled: no bit of the other rows changes, and each row that
//     attends to it holds a NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "bench/tensors/random.hpp"
#include "plan/table.hpp"
#include "problem/problem.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/problem/run_plan.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::HostTensor;

constexpr uint64_t kProblems = problem_count(200);

// The pairs that attend, of a problem.
class Attendance {
 public:
  explicit Attendance(HostProblem& host) : host_(host), p_(*resolve(host.problem)) {
    for (int64_t b = 0; b < p_.batch; ++b) {
      sequences_.push_back(sequence_of(p_, host.arguments(), b));
    }
  }

  const ForwardProblem& problem() const { return p_; }
  const Sequence& sequence(int64_t b) const { return sequences_[static_cast<size_t>(b)]; }

  // Rows of K and V per entry, in use or not.
  int64_t keys(int64_t b) const {
    if (!p_.packed) return p_.seqlen_kv;
    const HostTensor& cu = host_.at("cu_seqlens_kv");
    return static_cast<int64_t>(cu.get(b + 1) - cu.get(b));
  }

  bool attends(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const KeyRange range = visible_keys(sequence(b), p_.band, i);
    if (j < range.begin || j >= range.end) return false;
    if (host_.has("mask") && pair("mask", b, h, i, j) == 0) return false;
    return !host_.has("bias") || pair("bias", b, h, i, j) != -kInf;
  }

  bool attended(int64_t b, int64_t kv_head, int64_t j) const {
    const int64_t group = p_.heads_q / p_.heads_kv;
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
      for (int64_t i = 0; i < sequence(b).len_q; ++i) {
        if (attends(b, h, i, j)) return true;
      }
    }
    return false;
  }

  // Fills a key and its value.
  void poison(HostProblem& host, int64_t b, int64_t kv_head, int64_t j, double with) const {
    for (const char* const name : {"k", "v"}) {
      HostTensor& tensor = host.at(name);
      const int64_t width = name[0] == 'k' ? p_.head_dim_qk : p_.head_dim_v;
      const int64_t row = p_.packed ? (sequence(b).kv_begin + j) * p_.heads_kv + kv_head
                                    : (b * p_.heads_kv + kv_head) * p_.seqlen_kv + j;
      for (int64_t d = 0; d < width; ++d) tensor.set(row * width + d, with);
    }
  }

  // The index of a row of O and LSE.
  int64_t row(int64_t b, int64_t h, int64_t i) const {
    return p_.packed ? (sequence(b).q_begin + i) * p_.heads_q + h
                     : (b * p_.heads_q + h) * p_.seqlen_q + i;
  }

  static constexpr double kInf = std::numeric_limits<double>::infinity();

 private:
  double pair(const char* name, int64_t b, int64_t h, int64_t i, int64_t j) const {
    const HostTensor& tensor = host_.at(name);
    int64_t element = 0;
    size_t d = 0;
    for (const int64_t index : {b, h, i, j}) {
      const int64_t extent = tensor.desc().shape[d++];
      element = element * extent + (extent == 1 ? 0 : index);
    }
    return tensor.get(element);
  }

  const HostProblem& host_;
  ForwardProblem p_;
  std::vector<Sequence> sequences_;
};

// Returns false if the kernel refuses the problem.
bool run(HostProblem& host, const std::string& kernel) {
  const Result<Plan> plan = make_plan(host.problem, testing::on_kernel(kernel));
  if (!plan.ok()) return false;
  const Status status = run_plan(plan, host.arguments());
  EXPECT_TRUE(status.ok()) << status.message();
  return true;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void expect_hidden_keys_do_not_matter(const HostProblem& clean, const HostProblem& original,
                                      const Attendance& who, const std::string& kernel,
                                      bench::Random& random) {
  HostProblem dirty = original;
  const ForwardProblem& p = who.problem();
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t kv_head = 0; kv_head < p.heads_kv; ++kv_head) {
      for (int64_t j = 0; j < who.keys(b); ++j) {
        if (who.attended(b, kv_head, j)) continue;
        who.poison(dirty, b, kv_head, j,
                   random.pick({std::nan(""), Attendance::kInf, -Attendance::kInf}));
      }
    }
  }
  ASSERT_TRUE(run(dirty, kernel));
  EXPECT_TRUE(dirty.at("o").same_elements(clean.at("o"))) << "hidden keys changed o";
  if (clean.has("lse")) {
    EXPECT_TRUE(dirty.at("lse").same_elements(clean.at("lse"))) << "hidden keys changed lse";
  }
}

void expect_nan_in_its_rows_only(const HostProblem& clean, const HostProblem& original,
                                 const Attendance& who, const std::string& kernel,
                                 bench::Random& random) {
  const ForwardProblem& p = who.problem();
  if (p.batch == 0 || p.heads_q == 0) return;
  const int64_t b = random.integer(0, p.batch - 1);
  if (who.keys(b) == 0) return;
  const int64_t kv_head = random.integer(0, p.heads_kv - 1);
  const int64_t j = random.integer(0, who.keys(b) - 1);
  HostProblem dirty = original;
  who.poison(dirty, b, kv_head, j, std::nan(""));
  ASSERT_TRUE(run(dirty, kernel));
  for (int64_t entry = 0; entry < p.batch; ++entry) {
    for (int64_t h = 0; h < p.heads_q; ++h) {
      for (int64_t i = 0; i < who.sequence(entry).rows_q; ++i) {
        const bool attends = entry == b && p.kv_head(h) == kv_head && who.attends(b, h, i, j);
        const int64_t row = who.row(entry, h, i);
        for (int64_t d = 0; d < p.head_dim_v; ++d) {
          const double got = dirty.at("o").get(row * p.head_dim_v + d);
          const double before = clean.at("o").get(row * p.head_dim_v + d);
          ASSERT_TRUE(attends ? std::isnan(got) : same(got, before))
              << "NaN in entry " << b << " head " << kv_head << " key " << j << ": row " << entry
              << ' ' << h << ' ' << i << (attends ? " attends" : " does not attend") << ", column "
              << d << " is " << got << ", was " << before;
        }
        if (!clean.has("lse")) continue;
        const double got = dirty.at("lse").get(row);
        ASSERT_TRUE(attends ? std::isnan(got) : same(got, clean.at("lse").get(row)))
            << "lse of row " << entry << ' ' << h << ' ' << i << " is " << got;
      }
    }
  }
}

TEST(Poison, StaysWhereItIsAttended) {
  bench::RandomSpace space;
  space.largest_seqlen = 90;
  space.largest_head_dim = 72;
  space.hostile_values = false;
  uint64_t done = 0;
  EachTarget targets;
  for (uint64_t seed = 5000; seed < 5000 + kProblems; ++seed) {
    HostProblem original = bench::random_problem(seed, space);
    if (original.has("bias")) {
      bench::Random holes(seed);
      HostTensor& bias = original.at("bias");
      for (int64_t i = 0; i < bias.elements(); ++i) {
        if (holes.chance(0.3)) bias.set(i, -Attendance::kInf);
      }
    }
    const Attendance who(original);
    const std::string target = targets.use(seed);
    for (const Variant& kernel : variants()) {
      if (kernel.device != DeviceKind::cpu || kernel.name == "naive") continue;
      SCOPED_TRACE(fmt::format("kernel {} {} seed {}: {}", kernel.name, target, seed,
                               bench::describe(original.problem)));
      HostProblem clean = original;
      if (!run(clean, kernel.name)) continue;
      bench::Random random(seed);
      ASSERT_NO_FATAL_FAILURE(
          expect_hidden_keys_do_not_matter(clean, original, who, kernel.name, random));
      ASSERT_NO_FATAL_FAILURE(
          expect_nan_in_its_rows_only(clean, original, who, kernel.name, random));
      ++done;
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(done, kProblems);
}

// Dropout multiplies by 0 and removes no pair: a NaN in a value appears, only in its column, in
// every row that sees its key, even if the pair is dropped.
TEST(Poison, OfAValueShowsThroughDropout) {
  constexpr int64_t kKeys = 70, kQueries = 40, kColumn = 3, kKey = 37;
  EachTarget targets;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Problem problem;
    problem.q = problem.o = TensorDesc::contiguous(DType::bf16, {1, 1, kQueries, 24});
    problem.k = problem.v = TensorDesc::contiguous(DType::bf16, {1, 1, kKeys, 24});
    problem.causal = true;
    problem.dropout_p = seed % 2 == 0 ? 1.0f : 0.5f;
    const HostProblem original = bench::make_host_problem(problem, seed);
    const std::string target = targets.use(seed);
    for (const Variant& kernel : variants()) {
      if (kernel.device != DeviceKind::cpu || kernel.name == "naive") continue;
      SCOPED_TRACE(fmt::format("kernel {} {} seed {}", kernel.name, target, seed));
      HostProblem dirty = original;
      dirty.at("v").set(kKey * 24 + kColumn, std::nan(""));
      ASSERT_TRUE(run(dirty, kernel.name));
      for (int64_t i = 0; i < kQueries; ++i) {
        const bool sees = kKey <= i + kKeys - kQueries;
        for (int64_t d = 0; d < 24; ++d) {
          const double got = dirty.at("o").get(i * 24 + d);
          ASSERT_EQ(std::isnan(got), sees && d == kColumn) << "row " << i << " column " << d;
          if (problem.dropout_p == 1 && !std::isnan(got)) {
            ASSERT_EQ(got, 0.0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashcore
