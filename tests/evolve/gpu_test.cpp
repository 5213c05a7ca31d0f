// The evaluator of GPU candidates, with a stub of the driver: every cheat of
// tests/evolve/gpu_cheats is rejected for the reason in its first line, and honest programs are
// not. With FLASHCORE_EVOLVE_GPU=1 the same on this machine's GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "evolve/evaluate/stage_evaluator.hpp"
#include "evolve/task/folder.hpp"

namespace flashcore::evolve {
namespace {

namespace fs = std::filesystem;

const fs::path kCheats = FLASHCORE_GPU_CHEATS;
const bool kOnGpu = std::getenv("FLASHCORE_EVOLVE_GPU") != nullptr;
const std::string kGpuOnly = "// gpu only";

class Stub : public testing::Environment {
 public:
  void SetUp() override {
    if (!kOnGpu) ::setenv("LD_LIBRARY_PATH", FLASHCORE_STUBS, 1);
  }
};
const auto* const kStub = testing::AddGlobalTestEnvironment(new Stub);

Task small_task() {
  Task task;
  task.language = "cuda";
  task.dtype = DType::f16;
  task.shapes = {{1, 2, 2, 64, 64, kOnGpu ? 64 : 16, kOnGpu ? 0.125F : 0.25F}};
  EXPECT_TRUE(describe_machine(task, FLASHCORE_GPU_RUNNER).ok());
  if (!kOnGpu) {
    task.compiler = {"g++",
                     "-std=gnu++20",
                     "-x",
                     "c++",
                     "-I" FLASHCORE_STUB_HEADERS,
                     "-O2",
                     "-shared",
                     "-fPIC",
                     "-w",
                     "-fvisibility=hidden",
                     "-ffp-contract=fast",
                     "-march=native",
                     "-DHEAD_DIM=16",
                     "-DCAUSAL=0"};
  }
  task.budgets.call_seconds = 5;
  task.budgets.memory_mib = 16;
  task.timing = {.sample_seconds = 1e-3, .rounds = 3};
  return task;
}

Program cheat(const std::string& name) {
  return {*read_text(kCheats / "honest.inc") + "#line 1\n" + *read_text(kCheats / (name + ".cu")),
          {}};
}

std::vector<std::string> names_of_cheats() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCheats)) {
    if (entry.path().extension() != ".cu") continue;
    const bool gpu_only = read_text(entry.path())->find(kGpuOnly) != std::string::npos;
    if (kOnGpu || !gpu_only) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Evaluation evaluated(const Task& task, const Program& program, const Incumbent* incumbent = nullptr,
                     const std::string& objects = "") {
  StageEvaluator evaluator(task, {FLASHCORE_RUNNER, FLASHCORE_GPU_RUNNER, objects});
  Result<Evaluation> found = evaluator.evaluate(program, incumbent);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : Evaluation{};
}

class GpuCheats : public testing::TestWithParam<std::string> {};

TEST_P(GpuCheats, EndAsTheirFirstLineSays) {
  const std::string text = *read_text(kCheats / (GetParam() + ".cu"));
  std::smatch first;
  ASSERT_TRUE(std::regex_search(text, first, std::regex("^// (\\w+)(: (.*))?\n")));
  Task task = small_task();
  if (GetParam() == "hangs") task.budgets.call_seconds = 0.5;
  const Evaluation found = evaluated(task, cheat(GetParam()));
  const std::string said = found.stage + ": " + found.reason;
  EXPECT_EQ(to_string(found.outcome), first[1].str()) << said;
  if (first[3].matched) {
    EXPECT_NE(found.reason.find(first[3].str()), std::string::npos) << said;
  }
  if (found.outcome != Outcome::valid) {
    EXPECT_EQ(found.score, 0);
    EXPECT_FALSE(found.reason.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuCheats, testing::ValuesIn(names_of_cheats()),
                         [](const auto& one) { return one.param; });

TEST(GpuCheatsFolder, HoldsWhatTheIssueAsksFor) { EXPECT_GE(names_of_cheats().size(), 25u); }

TEST(GpuEvaluator, SeesThatAFasterProgramIsFaster) {
  const std::string often =
      "KERNEL(SIGNATURE) { for (volatile int i = 0; i < 6; i = i + 1) honest(ARGUMENTS); }\n";
  const Incumbent slow{{*read_text(kCheats / "honest.inc") + often, {}}, 3};
  const Evaluation found = evaluated(small_task(), cheat("honest"), &slow);
  EXPECT_EQ(found.outcome, Outcome::valid) << found.reason;
  EXPECT_THAT(found.score, testing::Gt(6.0));
  EXPECT_EQ(found.stage, "recheck");
  EXPECT_EQ(found.evidence["launch"]["threads"], 64);
}

TEST(GpuEvaluator, RefusesTimesPastThePeaks) {
  Task task = small_task();
  task.peak_flop_per_second = 1e6;
  Evaluation found = evaluated(task, cheat("honest"));
  EXPECT_EQ(found.outcome, Outcome::constraints);
  EXPECT_THAT(found.reason, testing::HasSubstr("the peak of this machine"));
  task = small_task();
  task.peak_bytes_per_second = 1e6;
  found = evaluated(task, cheat("honest"));
  EXPECT_EQ(found.outcome, Outcome::constraints);
  EXPECT_THAT(found.reason, testing::HasSubstr("L2"));
}

TEST(GpuEvaluator, HoldsTheClockOfTheGpuToItsOwn) {
  if (kOnGpu) GTEST_SKIP() << "the GPU's clock is right";
  const std::string bin = FLASHCORE_STUBS;
  ::setenv("LD_LIBRARY_PATH", (bin + "/late").c_str(), 1);
  fs::create_directories(bin + "/late");
  std::error_code error;
  fs::copy_file(bin + "/libcuda.so.1", bin + "/late/libcuda.so.1",
                fs::copy_options::overwrite_existing, error);
  Task task = small_task();
  task.budgets.call_seconds = 60;
  const Evaluation found = evaluated(task, cheat("honest"));
  ::setenv("LD_LIBRARY_PATH", FLASHCORE_STUBS, 1);
  EXPECT_EQ(found.outcome, Outcome::constraints) << found.reason;
  EXPECT_THAT(found.reason, testing::HasSubstr("behind the evaluator's"));
}

TEST(GpuEvaluator, KeepsWhatItCompiled) {
  const fs::path objects = fs::path(testing::TempDir()) / "evolve_objects";
  fs::remove_all(objects);
  const Task task = small_task();
  Evaluation found = evaluated(task, cheat("honest"), nullptr, objects.string());
  EXPECT_GT(found.evidence["compiler"]["seconds"].get<double>(), 0);
  found = evaluated(task, cheat("honest"), nullptr, objects.string());
  EXPECT_EQ(found.outcome, Outcome::valid) << found.reason;
  EXPECT_EQ(found.evidence["compiler"]["seconds"], 0);
  fs::remove_all(objects);
}

}  // namespace
}  // namespace flashcore::evolve
