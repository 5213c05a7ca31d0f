// Compares every CPU kernel in the table with the reference, on random problems over the whole
// feature space. Each problem comes from one number; a failure prints how to repeat it:
//
//   FLASHCORE_TEST_SEED=1234 FLASHCORE_TEST_PROBLEMS=1 differential_test
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "bench/cases/random_problem.hpp"
#include "plan/table.hpp"
#include "tests/cpu/judge.hpp"
#include "tests/cpu/one_entry.hpp"
#include "tests/cpu/relayout.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostProblem;

constexpr uint64_t kDefaultProblems = problem_count(300);

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

// The kernels to test: all that must pass the gates, so not the naive baseline.
std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Variant& kernel : variants()) {
    if (kernel.device == DeviceKind::cpu && kernel.name != "naive") names.push_back(kernel.name);
  }
  return names;
}

Status run(HostProblem& host, const std::string& kernel, int threads, bool batch_invariant) {
  PlanOptions options = testing::on_kernel(kernel, threads);
  options.batch_invariant = batch_invariant;
  bench::poison_outputs(host);
  return testing::run_on_host(host, options);
}

void expect_same_outputs(const HostProblem& got, const HostProblem& want, const char* when) {
  for (const auto& [name, tensor] : want.tensors) {
    if (bench::is_output(name)) {
      EXPECT_TRUE(got.at(name).same_elements(tensor)) << name << " differs " << when;
    }
  }
}

void expect_same_inputs(const HostProblem& got, const HostProblem& want) {
  for (const auto& [name, tensor] : want.tensors) {
    if (bench::is_output(name)) continue;
    const auto a = got.at(name).memory();
    const auto b = tensor.memory();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name << " was written";
  }
}

void expect_batch_invariance(const HostProblem& whole, const std::string& kernel, int threads) {
  HostProblem in_batch = whole;
  Status status = run(in_batch, kernel, threads, true);
  if (status.code() == StatusCode::unsupported) return;
  ASSERT_TRUE(status.ok()) << status.message();
  // Dropout depends on the entry's index: only the first entry keeps its mask.
  const int64_t entries =
      whole.problem.dropout_p > 0 ? std::min<int64_t>(1, entries_of(whole)) : entries_of(whole);
  for (int64_t b = 0; b < entries; ++b) {
    HostProblem alone = one_entry(whole, b);
    status = run(alone, kernel, threads, true);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(entry_is_same(in_batch, b, alone)) << "entry " << b << " depends on the batch";
  }
}

void test_kernel(const HostProblem& original, const bench::Reference& reference,
                 const std::string& kernel, int threads) {
  HostProblem host = original;
  const Status status = run(host, kernel, threads, false);
  ASSERT_TRUE(status.ok()) << status.message();
  const bench::Verdict verdict = bench::judge(host, reference);
  ASSERT_TRUE(verdict.passed) << verdict.failure;
  expect_same_inputs(host, original);

  HostProblem again = original;
  ASSERT_TRUE(run(again, kernel, threads, false).ok());
  expect_same_outputs(again, host, "when run again");
  ASSERT_TRUE(run(again, kernel, threads == 1 ? 4 : 1, false).ok());
  expect_same_outputs(again, host, "with another number of threads");
  expect_batch_invariance(original, kernel, threads);
}

// Mostly small and varied; sometimes long enough for several blocks, or wide.
bench::RandomSpace space_of(uint64_t seed) {
  bench::RandomSpace space;
  space.more_outputs = space.max_logit = space.mixes_fp8 = true;
  space.transposed_v = 0.5;
  if (seed % 16 == 7) space.largest_seqlen = 700;
  if (seed % 16 == 15) space.largest_head_dim = 600;
  if (seed % 3 == 0) space.largest_seqlen = 48;
  return space;
}

TEST(Differential, EveryCpuKernelAgainstTheReference) {
  const uint64_t first = number_from("FLASHCORE_TEST_SEED", 0);
  const uint64_t count = number_from("FLASHCORE_TEST_PROBLEMS", kDefaultProblems);
  fmt::print("seeds {} to {}; FLASHCORE_TEST_SEED and FLASHCORE_TEST_PROBLEMS choose others\n",
             first, first + count - 1);
  const std::vector<std::string> names = kernel_names();
  ASSERT_FALSE(names.empty());
  std::map<std::string, uint64_t> computed;
  EachTarget targets;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string target = targets.use(seed);
    HostProblem host = bench::random_problem(seed, space_of(seed));
    bench::Random random(seed);
    if (seed % 4 == 1) host = relayout(host, random);
    const Result<bench::Reference> reference = bench::compute_reference(host, 2);
    ASSERT_TRUE(reference.ok()) << seed << ": " << reference.status().message();
    const auto verdicts = explain(host.problem);
    ASSERT_TRUE(verdicts.ok());
    for (const KernelVerdict& verdict : *verdicts) {
      if (!verdict.refusal.empty()) continue;
      if (std::find(names.begin(), names.end(), verdict.kernel) == names.end()) continue;
      ++computed[verdict.kernel];
      SCOPED_TRACE(fmt::format("kernel {}, {} FLASHCORE_TEST_SEED={} FLASHCORE_TEST_PROBLEMS=1: {}",
                               verdict.kernel, target, seed, bench::describe(host.problem)));
      ASSERT_NO_FATAL_FAILURE(test_kernel(host, *reference, verdict.kernel,
                                          static_cast<int>(random.pick({1, 2, 3, 5}))));
      if (HasFailure()) return;
    }
  }
  for (const std::string& name : names) {
    fmt::print("{}: computed {} of {} problems\n", name, computed[name], count);
    if (count >= 50) {
      EXPECT_GT(computed[name], 0u) << name << " refused every problem";
    }
  }
}

}  // namespace
}  // namespace flashcore
