// The host's side of the CUDA kernels, over a runtime that only writes launches down.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cuda/host/device_guard.hpp"
#include "cuda/host/driver_entry.hpp"
#include "cuda/host/unique_name.hpp"
#include "kernel/device_code.hpp"
#include "plan/device.hpp"
#include "plan/explain_for.hpp"
#include "plan/forward_choice.hpp"
#include "plan/kernel_choice.hpp"
#include "plan/kernel_names.hpp"
#include "plan/table.hpp"
#include "plan/tuning_plans.hpp"
#include "tests/cuda/random_passes.hpp"
#include "tests/cuda/stubs/kernel_stubs.hpp"
#include "tests/cuda/stubs/watched_heap.hpp"
#include "tests/fuzz/all_plans.hpp"
#include "tests/fuzz/hostile_problem.hpp"
#include "tools/launches/runs.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr, testing::Not;

constexpr fake::Gpu kAmpere{80, 108, 163 * 1024}, kHopper{90, 132, 227 * 1024},
    kBlackwell{100, 148, 227 * 1024}, kGeForce{120, 188, 99 * 1024};

// The second GPU of two.
PlanContext context_for(const fake::Gpu& gpu) { return fake::context_of(gpu, 1); }

Problem dense(DType dtype, int64_t seqlen_q, int64_t seqlen_kv, int64_t head_dim = 128) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {2, 8, seqlen_q, head_dim});
  problem.k = problem.v = TensorDesc::contiguous(dtype, {2, 8, seqlen_kv, head_dim});
  problem.o = dtype == DType::f8e4m3
                  ? TensorDesc::contiguous(DType::f16, {2, 8, seqlen_q, head_dim})
                  : problem.q;
  if (dtype == DType::f8e4m3) {
    problem.q_scale = TensorDesc::contiguous(DType::f32, {1, 1});
    problem.k_scale = problem.v_scale = TensorDesc::contiguous(DType::f32, {1, 1, 1});
  }
  return problem;
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f8e4m3}) {
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{300, 300}, {1, 8192}, {2048, 2048}}) {
      all.push_back(dense(dtype, q, kv));
      all.push_back(dense(dtype, q, kv));
      all.back().causal = true;
    }
  }
  return all;
}

// No memory of another's lies in the workspace of any of the plans below. Nobody reads or writes it.
alignas(256) std::byte memory[512 << 20];

Arguments arguments() {
  Arguments args;
  args.q = args.k = args.v = memory;
  args.o = memory;
  args.q_scale = args.k_scale = args.v_scale = reinterpret_cast<const float*>(memory);
  return args;
}

PlanOptions on_gpu(const std::string& kernel = "") {
  PlanOptions options;
  options.device = {DeviceKind::cuda, 0};
  options.kernel = kernel;
  return options;
}

// The kernel of the choice, or why there is none.
std::string chosen(const Problem& problem) {
  const Result<Plan> plan = make_plan(problem, on_gpu());
  return plan.ok() ? std::string(plan->kernel()) : plan.status().message();
}

std::vector<KernelVerdict> verdicts(const Problem& problem) {
  const Result<std::vector<KernelVerdict>> all = explain(problem, on_gpu());
  EXPECT_TRUE(all.ok()) << all.status().message();
  return all.ok() ? *all : std::vector<KernelVerdict>();
}

class Stub : public testing::Test {
 protected:
  Stub() {
    unsetenv("FLASHCORE_KERNEL");
    fake::forget();
    fake::use(kHopper);
    fake::have_devices(2);
  }
  ~Stub() override { fake::forget(); }

  // body(kernel, plan) for every kernel of the table on every problem that it computes.
  template <class Body>
  void for_all_plans(const fake::Gpu& gpu, const Body& body) {
    fake::use(gpu);
    int plans = 0;
    for (const Variant& kernel : variants()) {
      if (kernel.device != DeviceKind::cuda) continue;
      for (const Problem& problem : problems()) {
        const Result<ForwardProblem> p = resolve(problem);
        ASSERT_TRUE(p.ok()) << p.status().message();
        const PlanContext context = context_for(gpu);
        if (!refusal_of(kernel, *p, context).empty()) continue;
        const Result<PlannedKernel> planned = kernel.plan(*p, context);
        ASSERT_TRUE(planned.ok()) << planned.status().message();
        ASSERT_LE(planned->workspace_bytes, sizeof memory) << kernel.name;
        (void)fake::take_launches();
        (void)fake::take_arguments();
        body(kernel, *planned);
        ++plans;
      }
    }
    EXPECT_GT(plans, 5);
  }

  static Status run(const PlannedKernel& planned) {
    return planned.run(arguments(), {memory, planned.workspace_bytes}, Stream{});
  }
};

// ---- which GPU is current

TEST_F(Stub, ARunOnOneGpuGivesNoOtherAContext) {
  for_all_plans(kHopper, [](const Variant& kernel, const PlannedKernel& planned) {
    ASSERT_TRUE(run(planned).ok()) << kernel.name;
    EXPECT_TRUE(fake::has_context(1)) << kernel.name;
    EXPECT_FALSE(fake::has_context(0)) << kernel.name << ", on GPU 1";
    for (const fake::Launch& launch : fake::take_launches()) EXPECT_EQ(launch.device, 1);
  });
}

TEST_F(Stub, AGpuInUseIsCurrentAgainAfterwards) {
  fake::give_context(0);
  for_all_plans(kHopper, [](const Variant& kernel, const PlannedKernel& planned) {
    EXPECT_EQ(fake::current_device(), 0) << kernel.name << ", after planning";
    ASSERT_TRUE(run(planned).ok()) << kernel.name;
    EXPECT_EQ(fake::current_device(), 0) << kernel.name;
    for (const fake::Launch& launch : fake::take_launches()) EXPECT_EQ(launch.device, 1);
  });
}

TEST_F(Stub, WhereTheDriverCannotBeAskedTheGpuBeforeIsCurrentAgain) {
  fake::fail("cuDevicePrimaryCtxGetState", 1);  // the first test of this program that asks finds it
  { const cuda::host::DeviceGuard guard(1); }
  fake::forget();
  { const cuda::host::DeviceGuard guard(1); }
  EXPECT_FALSE(fake::has_context(0)) << "and it is asked again";
}

// ---- errors

TEST_F(Stub, TheCallerFindsItsOwnErrorAndALaunchItsOwn) {
  fake::give_context(0);
  static constexpr int kCallers = cudaErrorMisalignedAddress;
  for_all_plans(kHopper, [](const Variant& kernel, const PlannedKernel& planned) {
    fake::set_last_error(kCallers);
    EXPECT_TRUE(run(planned).ok()) << kernel.name;
    EXPECT_EQ(fake::last_error(), kCallers) << kernel.name;
    fake::set_last_error(cudaSuccess);
    fake::fail("launch", 100);
    const Status status = run(planned);
    fake::fail("launch", 0);
    EXPECT_EQ(status.code(), StatusCode::device_error) << kernel.name;
    EXPECT_THAT(status.message(), HasSubstr("failed with")) << kernel.name;
    fake::set_last_error(cudaSuccess);
  });
}

TEST_F(Stub, DevicesThatCannotBeAskedAreAskedAgain) {
  // The first test of this process that looks for GPUs: CTest runs each in its own.
  fake::fail("cudaGetDeviceCount", 1);
  EXPECT_EQ(cuda_devices().size(), 0U);
  EXPECT_EQ(fake::last_error(), cudaSuccess) << "the caller did not make it";
  fake::fail("cudaGetDeviceProperties", 1);
  EXPECT_EQ(cuda_devices().size(), 1U);
  EXPECT_EQ(cuda_devices().size(), 2U);
  fake::fail("cudaGetDeviceCount", 1);
  EXPECT_EQ(cuda_devices().size(), 2U) << "what was found is kept";
}

TEST_F(Stub, ALookUpInTheDriverThatFailedIsMadeAgain) {
  using Function = void (*)();
  cuda::host::DriverEntry<Function> entry("cuLaunchKernelEx", 11060);
  Function function = nullptr;
  fake::fail("cuLaunchKernelEx", 1);
  EXPECT_NE(entry.get(function), cudaSuccess);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(entry.get(function), cudaSuccess);
  EXPECT_NE(function, nullptr);
  fake::fail("cuLaunchKernelEx", 1);
  EXPECT_EQ(entry.get(function), cudaSuccess) << "what was found is kept";
  cuda::host::DriverEntry<Function> none("cuNoSuchFunction", 11060);
  EXPECT_EQ(none.get(function), cudaErrorNotSupported);
  EXPECT_EQ(function, nullptr);
}

// ---- plans and what is queued

TEST_F(Stub, KernelsAreLoadedWhenPlanning) {
  for (const fake::Gpu& gpu : {kAmpere, kHopper}) {
    for_all_plans(gpu, [](const Variant& kernel, const PlannedKernel& planned) {
      if (!kernel.name.starts_with("forward_") && !kernel.name.starts_with("decode_")) {
        return;  // rungs load in their launches
      }
      ASSERT_TRUE(run(planned).ok()) << kernel.name;
      const std::vector<fake::Launch> launches = fake::take_launches();
      EXPECT_FALSE(launches.empty()) << kernel.name;
      for (const fake::Launch& launch : launches) EXPECT_TRUE(launch.ahead) << launch.kernel;
    });
    fake::forget();
  }
}

// A queued launch has copied its arguments; nothing in them may point to what goes with the plan.
TEST_F(Stub, NothingThatIsQueuedReadsThePlan) {
  // What lay between two members can look like half an address.
  if (!fake::kClearsPadding) GTEST_SKIP() << "this compiler cannot clear padding";
  fake::use(kHopper);
  int looked_at = 0;
  for (const Variant& kernel : variants()) {
    if (kernel.device != DeviceKind::cuda) continue;
    for (const Problem& problem : problems()) {
      const Result<ForwardProblem> p = resolve(problem);
      const PlanContext context = context_for(kHopper);
      if (!refusal_of(kernel, *p, context).empty()) continue;
      (void)fake::take_arguments();
      watched_heap.count = 0;
      watched_heap.watched = true;
      {
        const Result<PlannedKernel> planned = kernel.plan(*p, context);
        const Status status = run(*planned);
        watched_heap.watched = false;
        ASSERT_TRUE(status.ok()) << kernel.name;
      }
      const std::vector<std::byte> queued = fake::take_arguments();
      ASSERT_FALSE(queued.empty());
      ASSERT_LT(watched_heap.count, watched_heap.blocks.size());
      for (size_t at = 0; at + sizeof(uintptr_t) <= queued.size(); at += 4) {
        uintptr_t word = 0;
        std::memcpy(&word, queued.data() + at, sizeof word);
        for (size_t i = 0; i < watched_heap.count; ++i) {
          const auto begin = reinterpret_cast<uintptr_t>(watched_heap.blocks[i].first);
          EXPECT_FALSE(word >= begin && word < begin + watched_heap.blocks[i].second)
              << kernel.name << ": byte " << at << " of its launch's arguments points to the heap";
        }
      }
      ++looked_at;
    }
  }
  EXPECT_GT(looked_at, 5);
}

// ---- names of counters

TEST(UniqueName, NoTwoAreAlike) {
  static_assert(noexcept(cuda::host::unique_name()));
  constexpr int kThreads = 4, kEach = 50000;
  std::vector<std::vector<uint64_t>> drawn(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::vector<uint64_t>& mine : drawn) {
      threads.emplace_back([&mine] {
        for (int i = 0; i < kEach; ++i) mine.push_back(cuda::host::unique_name());
      });
    }
  }
  std::set<uint64_t> all;
  std::array<int, 64> ones{};
  for (const std::vector<uint64_t>& some : drawn) {
    for (const uint64_t name : some) {
      all.insert(name);
      for (size_t bit = 0; bit < ones.size(); ++bit) ones[bit] += (name >> bit & 1) != 0 ? 1 : 0;
    }
  }
  constexpr int kAll = kThreads * kEach;
  EXPECT_EQ(all.size(), static_cast<size_t>(kAll));
  EXPECT_EQ(ones[0], 0) << "odd numbers mark a claim";
  for (size_t bit = 1; bit < ones.size(); ++bit) {
    EXPECT_NEAR(ones[bit], kAll / 2, kAll / 50) << "bit " << bit;
  }
}

// ---- forward_converted:fp8: a plan within a plan

TEST_F(Stub, AConversionSaysWhichKernelItRuns) {
  Problem problem = dense(DType::f8e4m3, 2048, 2048);
  problem.o.dtype = DType::bf16;
  const Result<Plan> plan = make_plan(problem, on_gpu("forward_converted:fp8"));
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->reason(), HasSubstr("bf16 by forward_sm90_throughput"));
  const std::vector<KernelVerdict> all = verdicts(problem);
  const auto found = std::find_if(all.begin(), all.end(), [](const KernelVerdict& one) {
    return one.kernel == "forward_converted:fp8";
  });
  ASSERT_NE(found, all.end());
  EXPECT_EQ(found->refusal, "");
  EXPECT_THAT(found->note, HasSubstr("bf16 by forward_sm90_throughput"));
}

// Mixes of e4m3 and e5m2: by products of f16 where K and V have one type, and else by a conversion.
TEST_F(Stub, MixesOfFp8HaveAKernelOfTheChoice) {
  const auto of = [](DType k, DType v) {
    Problem problem = dense(DType::f8e4m3, 2048, 2048);
    problem.k.dtype = k;
    problem.v.dtype = v;
    return chosen(problem);
  };
  EXPECT_EQ(of(DType::f8e4m3, DType::f8e4m3), "forward_fp8_sm90");
  EXPECT_EQ(of(DType::f8e5m2, DType::f8e5m2), "forward_sm80_throughput:fp8");
  EXPECT_EQ(of(DType::f8e4m3, DType::f8e5m2), "forward_converted:fp8");
  EXPECT_EQ(of(DType::f8e5m2, DType::f8e4m3), "forward_converted:fp8");
  // Each of the others says why it is not.
  Problem problem = dense(DType::f8e4m3, 2048, 2048);
  problem.v.dtype = DType::f8e5m2;
  for (const KernelVerdict& one : verdicts(problem)) {
    if (one.kernel == "forward_converted:fp8") {
      EXPECT_EQ(one.refusal, "");
    } else if (one.kernel.starts_with("forward_fp8_sm90") ||
               one.kernel == "forward_sm80_throughput:fp8") {
      EXPECT_EQ(one.refusal, "v: dtype is f8e5m2, wanted k's f8e4m3") << one.kernel;
    } else {
      EXPECT_NE(one.refusal, "") << one.kernel;
    }
  }
}

// Under a Q of 16 bits, K and V may be of two types of fp8.
TEST_F(Stub, CachesOfTwoFp8TypesHaveAKernel) {
  for (const auto& [k, v] :
       {std::pair{DType::f8e4m3, DType::f8e5m2}, {DType::f8e5m2, DType::f8e4m3}}) {
    Problem problem = dense(DType::bf16, 1, 4096);
    problem.k.dtype = k;
    problem.v.dtype = v;
    const Result<Plan> plan = make_plan(problem, on_gpu());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->kernel(), "decode_sm80");
    EXPECT_THAT(std::string(plan->reason()), HasSubstr("decode_sm90: v: dtype is"));
  }
}

// At head dimension 256, fp8 products come in two parts: long rows are faster as bf16, where that shows
// in no output.
TEST_F(Stub, LongWideFp8RowsAreConverted) {
  Problem problem = dense(DType::f8e4m3, 16384, 16384, 256);
  problem.o.dtype = DType::bf16;
  EXPECT_EQ(chosen(problem), "forward_converted:fp8");
  for (const KernelVerdict& one : verdicts(problem)) {
    if (one.kernel != "forward_fp8_sm90:options" && one.kernel != "forward_sm80_throughput:fp8")
      continue;
    EXPECT_THAT(one.declines, HasSubstr("a conversion to bf16 is faster")) << one.kernel;
  }
  problem.causal = true;
  EXPECT_EQ(chosen(problem), "forward_converted:fp8");
  for (const DType dtype : {DType::f16, DType::f32}) {
    problem.o.dtype = dtype;
    EXPECT_EQ(chosen(problem), "forward_fp8_sm90:options");
  }
  problem = dense(DType::f8e4m3, 16384, 16384, 256);
  problem.o.dtype = DType::bf16;
  problem.softcap = 30;
  EXPECT_EQ(chosen(problem), "forward_fp8_sm90:options");
  problem = dense(DType::f8e4m3, 8192, 8192, 256);
  problem.o.dtype = DType::bf16;
  EXPECT_EQ(chosen(problem), "forward_fp8_sm90:options");
  problem = dense(DType::f8e4m3, 16384, 16384);
  problem.o.dtype = DType::bf16;
  EXPECT_EQ(chosen(problem), "forward_fp8_sm90:192x64");
}

// Every V stored transposed has a kernel: one that reads it so, or one that reads V in rows.
TEST_F(Stub, AVStoredTransposedHasAKernelOfTheChoice) {
  Problem problem = dense(DType::f8e4m3, 2048, 2048);
  problem.o.dtype = DType::bf16;
  problem.v = TensorDesc::contiguous(DType::f8e4m3, {2, 8, 128, 2048});
  problem.v_transposed = true;
  Result<Plan> plan = make_plan(problem, on_gpu());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kernel(), "forward_fp8_sm90");
  const auto reason = [&] {
    plan = make_plan(problem, on_gpu());
    if (!plan.ok()) return plan.status().message();
    EXPECT_EQ(plan->kernel(), "forward_converted:v_rows");
    EXPECT_GE(plan->workspace_bytes(), size_t{2} * 8 * 2048 * 128);
    return std::string(plan->reason());
  };
  problem.softcap = 30;
  EXPECT_THAT(reason(), HasSubstr("V in rows by forward_fp8_sm90:options"));
  problem.dropout_p = 0.5F;
  EXPECT_THAT(reason(), HasSubstr("V in rows by forward_sm80_throughput:fp8"));
  problem.v.dtype = DType::f8e5m2;
  EXPECT_THAT(reason(), HasSubstr("V in rows by forward_converted:fp8"));
  problem.q.dtype = problem.o.dtype = DType::f16;
  problem.q_scale.reset();
  problem.v.dtype = DType::f8e4m3;
  // What no kernel computes is refused in the words of the one that computes most.
  EXPECT_THAT(reason(), HasSubstr("forward_converted:v_rows: dropout_p: is 0.5, wanted 0"));
  problem.dropout_p = 0;
  EXPECT_THAT(reason(), HasSubstr("V in rows by decode_sm80"));
}

// What no kernel inside computes is refused in that kernel's words.
TEST_F(Stub, AConversionRefusesWhatNoKernelComputes) {
  const Result<Plan> plan =
      make_plan(dense(DType::f8e4m3, 300, 300, 600), on_gpu("forward_converted:fp8"));
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("head dimension is 600, wanted at most"));
}

TEST_F(Stub, AConversionLaunchesTwoOrThreeTimes) {
  for (const auto& [dtype, launches] :
       {std::pair{DType::bf16, 2}, {DType::f16, 2}, {DType::f32, 3}, {DType::f8e4m3, 3}}) {
    Problem problem = dense(DType::f8e4m3, 2048, 2048);
    problem.o.dtype = dtype;
    const Result<Plan> plan = make_plan(problem, on_gpu("forward_converted:fp8"));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const Result<Plan> again = make_plan(problem, on_gpu("forward_converted:fp8"));
    EXPECT_EQ(plan->workspace_bytes(), again->workspace_bytes());
    ASSERT_LE(plan->workspace_bytes(), sizeof memory / 2);
    (void)fake::take_launches();
    Arguments args = arguments();
    args.q = args.k = args.v = memory + sizeof memory / 2;
    args.o = memory + sizeof memory / 4 * 3;
    const Status status = plan->run(args, memory, plan->workspace_bytes());
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(fake::take_launches().size(), static_cast<size_t>(launches));
  }
}

TEST_F(Stub, GradientsOfOptionsComeAfterTheRest) {
  Problem problem = dense(DType::bf16, 300, 300);
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 8, 300});
  problem.bias = TensorDesc::contiguous(DType::bf16, {1, 8, 300, 300});
  problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {8});
  Gradients gradients;
  gradients.d_o = gradients.dq = gradients.dk = gradients.dv = problem.q;
  BackwardArguments args;
  args.forward = arguments();
  args.forward.bias = memory;
  args.forward.lse = reinterpret_cast<float*>(memory);
  args.forward.alibi_slopes = reinterpret_cast<const float*>(memory);
  size_t place = sizeof memory;
  for (void** const output : {&args.dq, &args.dk, &args.dv, &args.d_bias, &args.d_alibi_slopes}) {
    *output = memory + (place -= 16 << 20);
  }
  args.d_o = memory;
  const auto launched = [&] {
    const Result<Plan> plan = make_backward_plan(problem, gradients, on_gpu());
    EXPECT_EQ(plan.ok() ? plan->kernel() : plan.status().message(), "backward_sm90:options");
    const Status status = plan->run(args, memory, plan->workspace_bytes());
    EXPECT_TRUE(status.ok()) << status.message();
    std::vector<std::string> names;
    for (const fake::Launch& one : fake::take_launches()) names.push_back(one.kernel);
    return names;
  };
  (void)fake::take_launches();
  const std::vector<std::string> rest = launched();
  gradients.d_bias = problem.bias;
  gradients.d_alibi_slopes = problem.alibi_slopes;
  std::vector<std::string> wanted = rest;
  for (const char* const name :
       {"bf16_config2_add_pair_slopes", "bf16_config2_d_bias", "bf16_config2_finish_d_bias"}) {
    wanted.push_back(std::string("backward_sm90:") + name);
  }
  EXPECT_EQ(launched(), wanted);
}

// ---- the choice, and what explain says of it

TEST_F(Stub, ExplainAndTheChoiceAgree) {
  fake::use(kHopper);
  std::mt19937 random(11);
  int declined = 0;
  for (int n = 0; n < 300; ++n) {
    Problem problem = dense(random() % 2 == 0 ? DType::f16 : DType::bf16, 1 + random() % 3000,
                            1 + random() % 3000, random() % 2 == 0 ? 64 : 128);
    problem.causal = random() % 2 == 0;
    const Result<Plan> plan = make_plan(problem, on_gpu());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::string first, first_that_declines;
    for (const KernelVerdict& verdict : verdicts(problem)) {
      if (!verdict.automatic || !verdict.refusal.empty()) {
        EXPECT_EQ(verdict.declines, "") << verdict.kernel;
        continue;
      }
      if (!verdict.declines.empty()) {
        ++declined;
        if (first_that_declines.empty()) first_that_declines = verdict.kernel;
        if (first.empty()) {
          EXPECT_THAT(std::string(plan->reason()), HasSubstr(verdict.declines));
        }
      } else if (first.empty()) {
        first = verdict.kernel;
      }
    }
    EXPECT_EQ(plan->kernel(), first.empty() ? first_that_declines : first);
  }
  EXPECT_GT(declined, 100);
}

// What `flashcore tune` tries: each kernel plans each config that it names, and no other.
TEST_F(Stub, EveryCandidateIsPlanned) {
  PlanOptions options = on_gpu();
  std::mt19937 random(5);
  std::set<std::string> configs;
  for (const fake::Gpu& gpu : {kHopper, kAmpere}) {
    fake::use(gpu);
    for (int n = 0; n < 60; ++n) {
      Problem problem = dense(random() % 2 == 0 ? DType::f16 : DType::bf16, 1 + random() % 600,
                              1 + random() % 6000, 32 << random() % 4);
      problem.causal = random() % 2 == 0;
      const Result<std::vector<std::string>> names = candidates_of(problem, options);
      ASSERT_TRUE(names.ok()) << names.status().message();
      const Result<Plan> automatic = make_plan(problem, options);
      ASSERT_TRUE(automatic.ok()) << automatic.status().message();
      EXPECT_EQ(names->front(), automatic->kernel());
      EXPECT_EQ(std::set<std::string>(names->begin(), names->end()).size(), names->size());
      for (const std::string& name : *names) {
        options.kernel = name;
        const Result<Plan> plan = make_plan(problem, options);
        EXPECT_TRUE(plan.ok()) << plan.status().message();
        if (name.find(':') != std::string::npos) configs.insert(name);
        options.kernel = asked_name(name).name + ":none";
        EXPECT_THAT(make_plan(problem, options).status().message(), HasSubstr("config is 'none'"));
      }
      options.kernel.clear();
    }
  }
  EXPECT_THAT(configs,
              testing::IsSupersetOf({std::string("forward_sm90_throughput:64x128"),
                                     std::string("forward_sm90_latency:cluster=2,blocks=1"),
                                     std::string("forward_sm80_latency:warps=4")}));
}

TEST_F(Stub, AGridLimitIsANumberOfSms) {
  fake::use(kHopper);
  const Problem problem = dense(DType::f16, 512, 512, 64);
  ::setenv("FLASHCORE_GRID_LIMIT", "66", 1);
  EXPECT_EQ(tuning_key(problem, on_gpu())->device.multiprocessors, 66);
  for (const char* const bad : {"0", "-3", "66 SMs", "99999999999999999999"}) {
    ::setenv("FLASHCORE_GRID_LIMIT", bad, 1);
    EXPECT_THAT(make_plan(problem, on_gpu()).status().message(),
                HasSubstr(std::string("FLASHCORE_GRID_LIMIT: is '") + bad + "', wanted a number"));
  }
  ::unsetenv("FLASHCORE_GRID_LIMIT");
  EXPECT_GT(tuning_key(problem, on_gpu())->device.multiprocessors, 66);
}

// What is said of a GPU that is not here is what plans do where it is.
TEST_F(Stub, AGpuThatIsDescribedGetsTheVerdictsOfOneThatIsHere) {
  fake::use(kHopper);
  PlanOptions options = on_gpu();
  const Result<DeviceInfo> here = find_device(options.device);
  ASSERT_TRUE(here.ok()) << here.status().message();
  DeviceInfo ampere = *here;
  ampere.name = "GPU";
  ampere.compute_capability = kAmpere.compute_capability;
  ampere.multiprocessors = kAmpere.multiprocessors;
  ampere.shared_memory_per_block = kAmpere.shared_memory_per_block;
  for (const Problem& problem : problems()) {
    const Result<std::vector<KernelVerdict>> wanted = explain(problem, options);
    const Result<Plan> plan = make_plan(problem, options);
    const Result<ExplainedFor> said = explain_for(*here, problem, PlanOptions{});
    ASSERT_TRUE(wanted.ok() && said.ok());
    EXPECT_EQ(said->kernel, plan.ok() ? plan->kernel() : "");
    ASSERT_EQ(said->verdicts.size(), wanted->size());
    for (size_t i = 0; i < wanted->size(); ++i) {
      EXPECT_EQ(said->verdicts[i].kernel, (*wanted)[i].kernel);
      EXPECT_EQ(said->verdicts[i].refusal, (*wanted)[i].refusal);
      EXPECT_EQ(said->verdicts[i].declines, (*wanted)[i].declines);
      EXPECT_EQ(said->verdicts[i].note, (*wanted)[i].note);
    }
    const Result<ExplainedFor> elsewhere = explain_for(ampere, problem, PlanOptions{});
    ASSERT_TRUE(elsewhere.ok());
    EXPECT_THAT(elsewhere->kernel, Not(HasSubstr("sm90")));
  }
  PlanOptions named;
  named.kernel = "forward_sm90_throughput";
  const Problem problem = dense(DType::f16, 512, 512);
  EXPECT_EQ(explain_for(*here, problem, named)->kernel, named.kernel);
  EXPECT_EQ(explain_for(ampere, problem, named)->kernel, "");
  named.kernel = "none";
  EXPECT_THAT(explain_for(ampere, problem, named).status().message(),
              HasSubstr("kernel: is 'none', wanted a kernel for GPU"));
}

TEST_F(Stub, ARunOnAGpuAllocatesNoWorkspace) {
  fake::use(kHopper);
  const Result<Plan> plan = make_plan(dense(DType::f16, 1, 8192), on_gpu());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_GT(plan->workspace_bytes(), 0U);
  Arguments args = arguments();
  args.o = reinterpret_cast<void*>(uintptr_t{1} << 40);  // far from the inputs
  const Status status = plan->run(args);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("workspace: has 0 bytes, wanted"));
  EXPECT_TRUE(fake::take_launches().empty());
}

// ---- GPUs that no kernel has code of its own for

TEST(LaterGpus, RunTheKernelsForAmpereFromPtxAndSaySo) {
  const Result<ForwardProblem> p = resolve(dense(DType::f16, 2048, 2048));
  for (const fake::Gpu& gpu : {kBlackwell, kGeForce}) {
    const KernelChoice choice = choose_kernel(*p, context_for(gpu));
    ASSERT_NE(choice.kernel, nullptr) << choice.reason;
    EXPECT_EQ(choice.kernel->name, "forward_sm80_throughput");
    for (const KernelVerdict& verdict : choice.verdicts) {
      if (!verdict.refusal.empty()) {
        EXPECT_EQ(verdict.note, "") << verdict.kernel;
        continue;
      }
      EXPECT_THAT(verdict.kernel, HasSubstr("sm80"));
      EXPECT_THAT(verdict.note, HasSubstr("never measured on compute capability " +
                                          capability_text(gpu.compute_capability)));
    }
  }
  PlanContext measured = context_for(kHopper);
  measured.device.name = "NVIDIA H200";
  for (const PlanContext& context : {measured, context_for(kAmpere)}) {
    for (const KernelVerdict& verdict : choose_kernel(*p, context).verdicts) {
      EXPECT_THAT(verdict.note, Not(HasSubstr("never measured")))
          << verdict.kernel << " on " << context.device.compute_capability;
    }
  }
}

// What goes by predicted times, on a GPU whose times they are not.
TEST(UnmeasuredGpus, SayThatTheirTimesAreScaled) {
  const Result<ForwardProblem> p = resolve(dense(DType::f16, 512, 512));
  PlanContext measured = context_for(kHopper), ampere = context_for(kAmpere);
  measured.device.name = "NVIDIA H200";
  ampere.device.name = "NVIDIA A100-SXM4-80GB";
  for (const KernelVerdict& verdict : choose_kernel(*p, measured).verdicts) {
    EXPECT_THAT(verdict.declines + verdict.note, Not(HasSubstr("not measured"))) << verdict.kernel;
  }
  const KernelChoice choice = choose_kernel(*p, ampere);
  for (const KernelVerdict& verdict : choice.verdicts) {
    const bool by_time =
        verdict.kernel == "forward_sm80_latency" || verdict.kernel == "forward_sm80_throughput";
    EXPECT_EQ(verdict.note.find("not measured on this GPU: times are scaled from NVIDIA H200") !=
                  std::string::npos,
              by_time)
        << verdict.kernel << ": " << verdict.note;
  }
  const Result<ForwardProblem> larger = resolve(dense(DType::f16, 1536, 1536));
  const KernelChoice other = choose_kernel(*larger, ampere);
  ASSERT_NE(other.kernel, nullptr);
  EXPECT_EQ(other.kernel->name, "forward_sm80_throughput");
  EXPECT_THAT(other.reason, HasSubstr("not measured on this GPU"));
}

// ---- sizes

// Under the sanitizer this is the fuzzer plan_fuzz with a seed of its own.
TEST_F(Stub, SizesOfPlansFit) {
  std::mt19937 random(23);
  const auto draw = [&]() -> uint32_t { return static_cast<uint32_t>(random()); };
  int resolved = 0;
  for (int n = 0; n < 20000; ++n) {
    const Problem problem = tests::hostile_problem(draw);
    if (resolve(problem).ok()) ++resolved;
    ASSERT_EQ(tests::plan_everywhere(problem, n % 2 == 1), "") << "problem " << n;
  }
  EXPECT_GT(resolved, 2000);
}

TEST_F(Stub, SizesOfBackwardPlansFit) {
  std::mt19937 random(24);
  const auto draw = [&]() -> uint32_t { return static_cast<uint32_t>(random()); };
  int resolved = 0;
  for (int n = 0; n < 20000; ++n) {
    Problem problem = tests::hostile_problem(draw);
    const Gradients gradients = tests::hostile_gradients(draw, problem);
    if (resolve(problem, gradients).ok()) ++resolved;
    ASSERT_EQ(tests::plan_everywhere(problem, gradients, n % 2 == 1, n % 4 < 2), "")
        << "problem " << n;
  }
  EXPECT_GT(resolved, 1000);
}

}  // namespace
}  // namespace flashcore
