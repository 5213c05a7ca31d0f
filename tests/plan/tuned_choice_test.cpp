// Plans that use a table of measurements, on this machine's CPU.
#include "plan/tuned_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "plan/device.hpp"
#include "plan/source_fingerprints.hpp"
#include "plan/table.hpp"
#include "plan/tuning_plans.hpp"
#include "tests/cli/scratch.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Variant& kernel_called(const std::string& name) {
  for (const Variant& kernel : variants()) {
    if (kernel.name == name) return kernel;
  }
  throw std::runtime_error("no kernel " + name);
}

Problem problem(int64_t seqlen = 256) {
  Problem p;
  p.q = p.k = p.v = p.o = TensorDesc::contiguous(DType::f32, {1, 4, seqlen, 32});
  p.lse = TensorDesc::contiguous(DType::f32, {1, 4, seqlen});
  return p;
}

PlanOptions options(const std::string& kernel = "", int threads = 2) {
  PlanOptions out;
  out.kernel = kernel;
  out.threads = threads;
  return out;
}

// A table with one entry, for problem(), in use during its lifetime.
class TunedChoice : public ::testing::Test {
 protected:
  ~TunedChoice() override {
    ::setenv("FLASHCORE_TUNING", "none", 1);
    reload_tuning();
  }

  tuning::TunedEntry entry(const std::string& kernel = "cpu_simd",
                           const std::string& config = "rows=96,block_kv=128") {
    const Variant& named = kernel_called(kernel);
    return {.kernel = kernel,
            .config = config,
            .is_default = false,
            .fingerprint = std::string(source_fingerprint(named)),
            .compiler = std::string(compiler_of(named)),
            .us = 80,
            .default_us = 100,
            .noise = 0.01,
            .default_kernel = "cpu_simd",
            .measured = "2026-11-24",
            .problems = {"one"}};
  }

  void use(const tuning::TunedEntry& one) {
    tuning::TunedTable table{.device = tuning::tuned_device(cpu_device()), .entries = {}};
    table.entries.emplace(tuning_key(problem(), options())->text, one);
    use_text(tuning::table_text(table));
  }

  void use_text(const std::string& text) { use_path(scratch_.write("table.json", text)); }
  void use_path(const std::string& path) {
    ::setenv("FLASHCORE_TUNING", path.c_str(), 1);
    reload_tuning();
  }

  static Plan plan(const Problem& p = problem(), const PlanOptions& how = options()) {
    Result<Plan> made = make_plan(p, how);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *made;
  }
  static std::string reason(const Problem& p = problem()) { return std::string(plan(p).reason()); }

  static std::string note(const std::string& kernel) {
    const Result<std::vector<KernelVerdict>> verdicts = explain(problem(), options());
    if (!verdicts.ok()) return verdicts.status().message();
    for (const KernelVerdict& verdict : *verdicts) {
      if (verdict.kernel == kernel) return verdict.note;
    }
    return "not there";
  }

  tests::Scratch scratch_;
};

TEST_F(TunedChoice, AnEntryDecidesAndSaysSo) {
  use(entry());
  EXPECT_EQ(plan().kernel(), "cpu_simd");
  EXPECT_THAT(
      reason(),
      AllOf(StartsWith("cpu_simd:rows=96,block_kv=128 was 25% ahead of cpu_simd, measured on "
                       "2026-11-24 (tuning table "),
            HasSubstr("table.json"), Not(HasSubstr("compiler"))));
  EXPECT_THAT(note("cpu_simd"), HasSubstr("cpu_simd:rows=96,block_kv=128 was 25% ahead"));
  EXPECT_THAT(reason(problem(4096)), Not(HasSubstr("tuning"))) << "another length";
  EXPECT_THAT(std::string(plan(problem(), options("", 1)).reason()), HasSubstr("25% ahead"))
      << "bits must not go by the number of threads";
  EXPECT_EQ(plan(problem(), options("cpu_simd")).reason(), "it was asked for by name");
}

TEST_F(TunedChoice, TheConfigIsWhatRuns) {
  const size_t own = plan().workspace_bytes();
  use(entry("cpu_simd", "threads=1"));
  EXPECT_LT(plan().workspace_bytes(), own) << "one thread's scratch memory in the place of two";
  EXPECT_EQ(plan().workspace_bytes(),
            plan(problem(), options("cpu_simd:threads=1")).workspace_bytes());
}

// The guarantees of docs/semantics.md hold with any table, too.
TEST_F(TunedChoice, BitsAreTheSameAtAnyNumberOfThreads) {
  std::vector<float> q(4 * 256 * 32), lse(4 * 256);
  for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i * i % 1009));
  const Result<std::vector<std::string>> names = candidates_of(problem(), options("", 7));
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    use(entry("cpu_simd", name.substr(std::min(name.find(':'), name.size() - 1) + 1)));
    std::vector<float> first;
    for (const int threads : {1, 2, 7, 64}) {
      std::vector<float> o(q.size());
      const Arguments args{
          .q = q.data(), .k = q.data(), .v = q.data(), .o = o.data(), .lse = lse.data()};
      ASSERT_TRUE(plan(problem(), options("", threads)).run(args).ok());
      if (first.empty()) first = o;
      EXPECT_EQ(std::memcmp(first.data(), o.data(), o.size() * sizeof(float)), 0)
          << name << " on " << threads << " threads";
    }
  }
}

TEST_F(TunedChoice, BatchInvariantPlansDoNotGoByIt) {
  use(entry());
  PlanOptions invariant = options();
  invariant.batch_invariant = true;
  EXPECT_THAT(std::string(plan(problem(), invariant).reason()), Not(HasSubstr("tuning")));
}

TEST_F(TunedChoice, AnotherCompilerIsUsedAndNamed) {
  tuning::TunedEntry one = entry();
  one.compiler = "GNU 9.9.9";
  use(one);
  EXPECT_THAT(reason(), AllOf(HasSubstr("25% ahead"),
                              HasSubstr("tuned with another compiler (GNU 9.9.9, now ")));
}

TEST_F(TunedChoice, AnotherSourceIsIgnoredAndNamed) {
  tuning::TunedEntry one = entry();
  one.fingerprint = "source 0123456789abcdef";
  use(one);
  EXPECT_THAT(reason(), AllOf(HasSubstr("names cpu_simd:rows=96,block_kv=128"),
                              HasSubstr("its source has changed since: not used")));
  EXPECT_THAT(note("cpu_simd"), HasSubstr("its source has changed since"));
}

TEST_F(TunedChoice, WhatCannotRunIsNotUsed) {
  tuning::TunedEntry one = entry();
  one.kernel = "no_such_kernel";
  use(one);
  EXPECT_THAT(reason(), HasSubstr("this build has no such kernel: not used"));
  use(entry("naive", ""));
  EXPECT_THAT(reason(), HasSubstr("it runs only when asked for by name: not used"));
  use(entry("cpu_simd", "rows=12345"));
  EXPECT_THAT(reason(), HasSubstr("config is 'rows=12345', wanted none or one of"));
  use(entry("cpu_simd", "rows=96,rows=96"));
  EXPECT_THAT(reason(), HasSubstr("not used"));
}

TEST_F(TunedChoice, ADefaultThatIsFastestStaysAChoice) {
  tuning::TunedEntry one = entry("cpu_simd", "");
  one.is_default = true;
  use(one);
  EXPECT_THAT(reason(), HasSubstr("best kernel of this device"));
  EXPECT_THAT(note("cpu_simd"), HasSubstr("none was ahead of cpu_simd by more than 2% and noise"));
}

TEST_F(TunedChoice, AWinnerOverAnotherDefaultIsNotUsed) {
  tuning::TunedEntry one = entry("reference", "");
  use(one);
  EXPECT_EQ(plan().kernel(), "reference") << "it was ahead of the default of today";
  one.default_kernel = "cpu_before:rows=8";
  use(one);
  EXPECT_EQ(plan().kernel(), "cpu_simd");
  EXPECT_THAT(reason(), HasSubstr("names reference, but that was ahead of cpu_before, and the "
                                  "default is cpu_simd now: not used"));
}

TEST_F(TunedChoice, FilesThatAreNoTableOfThisDeviceAreLeftAlone) {
  use_text("{\"schema\": ");
  EXPECT_THAT(reason(), Not(HasSubstr("tuning")));
  EXPECT_THAT(tuning_source(cpu_device()).problem, HasSubstr("is not JSON"));
  tuning::TunedTable other{
      .device = {.name = "Other CPU", .compute_capability = 0, .multiprocessors = 1},
      .entries = {}};
  use_text(tuning::table_text(other));
  EXPECT_THAT(tuning_source(cpu_device()).problem, HasSubstr("is for Other CPU"));
  use_path(scratch_.path("missing.json"));
  EXPECT_THAT(tuning_source(cpu_device()).problem, HasSubstr("is not there, wanted a table"));
  use_path("none");
  EXPECT_EQ(tuning_source(cpu_device()).problem, "");
  EXPECT_EQ(tuning_source(cpu_device()).place, "");
}

TEST_F(TunedChoice, AFolderHasATableOfEachDevice) {
  use(entry());
  const std::string name = tuning::file_name(tuning::tuned_device(cpu_device()));
  scratch_.write(name, scratch_.read("table.json"));
  use_path(scratch_.path(""));
  EXPECT_THAT(reason(), HasSubstr(name));
}

TEST_F(TunedChoice, WithoutAVariableItIsInTheUsersCacheFolder) {
  use(entry());
  const std::string text = scratch_.read("table.json");
  const std::string before = std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : "";
  ::unsetenv("FLASHCORE_TUNING");
  ::setenv("XDG_CACHE_HOME", scratch_.path("").c_str(), 1);
  const std::string path = tuning_path(cpu_device());
  EXPECT_THAT(path, AllOf(StartsWith(scratch_.path("")), HasSubstr("/flashcore/")));
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
  reload_tuning();
  EXPECT_THAT(reason(), HasSubstr("tuning table " + path));
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_THAT(tuning_path(cpu_device()), Not(HasSubstr("relative")));
  if (before.empty()) {
    ::unsetenv("XDG_CACHE_HOME");
  } else {
    ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
  }
}

// A table is loaded once: later changes of its file do not affect plans.
TEST_F(TunedChoice, PlansReadNoFile) {
  use(entry());
  EXPECT_THAT(reason(), HasSubstr("25% ahead"));
  std::filesystem::remove(scratch_.path("table.json"));
  EXPECT_THAT(reason(), HasSubstr("25% ahead"));
  reload_tuning();
  EXPECT_THAT(reason(), Not(HasSubstr("25% ahead")));
}

TEST_F(TunedChoice, ThreadsMayPlanWhileItIsReloaded) {
  use(entry());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 200; ++n) {
        if (i == 0) reload_tuning();
        EXPECT_EQ(plan().kernel(), "cpu_simd");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Candidates, AreTheDefaultAndAllOtherWays) {
  const Result<std::vector<std::string>> names = candidates_of(problem(), options());
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->front(), "cpu_simd");
  EXPECT_THAT(*names,
              AllOf(Contains("cpu_simd:rows=96,block_kv=128"), Contains("cpu_simd:threads=1"),
                    Contains(HasSubstr("block_kv=64")), Each(StartsWith("cpu_simd"))));
  for (const std::string& name : *names) {
    EXPECT_TRUE(make_plan(problem(), options(name)).ok()) << name;
  }
}

TEST(Candidates, AConfigThatIsNoneIsRefusedWithThoseThatAre) {
  const Result<Plan> plan = make_plan(problem(), options("cpu_simd:rows=97"));
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(),
              AllOf(HasSubstr("kernel cpu_simd: config is 'rows=97', wanted none or one of"),
                    HasSubstr("rows=96,block_kv=128")));
  EXPECT_THAT(make_plan(problem(), options("reference:x")).status().message(),
              HasSubstr("wanted none: it has one way"));
}

}  // namespace
}  // namespace flashcore
