// The dispatcher with its own table: this program defines variants(), so that the linker leaves out
// the library's table. It tests behaviour that the real kernels do not have.
#include "plan/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "plan/forward_choice.hpp"
#include "plan/kernel_choice.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"
#include "tests/problem/problems.hpp"

// Under the address sanitizer, too, a failed allocation is an error and does not abort.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the sanitizer's name
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace flashcore {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kWorkspace = 1000;
int runs = 0;
std::span<std::byte> workspace_seen;

// What few kernels have.
constexpr Features kMixes = {Feature::k_apart, Feature::v_apart};
constexpr Features kRare =
    feature_sets::kCaches | feature_sets::kLargest | kMixes |
    Features{Feature::tree_mask, Feature::v_transposed, Feature::o_scale, Feature::dropout_state};

Supports without_rare(std::string refusal) {
  Supports supports = everything<ForwardProblem>();
  supports.features = supports.features - kRare;
  supports.extra = [refusal](const ForwardProblem&, const PlanContext&) { return refusal; };
  return supports;
}

void add(Variant& kernel, Features more) {
  kernel.supports.features = kernel.supports.features | more;
}

Variant fake(std::string name, bool automatic, std::string refusal) {
  return {.name = std::move(name),
          .device = DeviceKind::cpu,
          .automatic = automatic,
          .supports = without_rare(std::move(refusal)),
          .plan = [](const ForwardProblem&, const PlanContext&) -> Result<PlannedKernel> {
            return PlannedKernel{
                .workspace_bytes = 0,
                .run = [](const Arguments&, std::span<std::byte>, Stream) -> Status {
                  ++runs;
                  return {};
                }};
          }};
}

Variant with_workspace() {
  Variant kernel = fake("workspace", true, "");
  kernel.plan = [](const ForwardProblem&, const PlanContext&) -> Result<PlannedKernel> {
    return PlannedKernel{
        .workspace_bytes = kWorkspace,
        .run = [](const Arguments&, std::span<std::byte> workspace, Stream) -> Status {
          ++runs;
          workspace_seen = workspace;
          std::fill(workspace.begin(), workspace.end(), std::byte{1});  // the run may write it
          return {};
        }};
  };
  return kernel;
}

Variant without_memory() {
  Variant kernel = fake("no_memory", false, "");
  kernel.plan = [](const ForwardProblem&, const PlanContext&) -> Result<PlannedKernel> {
    return PlannedKernel{.workspace_bytes = 0,
                         .run = [](const Arguments&, std::span<std::byte>, Stream) -> Status {
                           throw std::bad_alloc();
                         }};
  };
  return kernel;
}

Variant unplannable() {
  Variant kernel = fake("unplannable", false, "");
  kernel.plan = [](const ForwardProblem&, const PlanContext&) -> Result<PlannedKernel> {
    return Status(StatusCode::internal, "plan: always fails");
  };
  return kernel;
}

Variant on_gpu() {
  Variant kernel = fake("gpu", true, "");
  kernel.device = DeviceKind::cuda;
  return kernel;
}

std::vector<Variant>& table() {
  static std::vector<Variant> kernels;
  return kernels;
}

}  // namespace

const std::vector<Variant>& variants() { return table(); }

namespace {

class Table : public testing::Test {
 protected:
  Table() {
    unsetenv("FLASHCORE_KERNEL");
    runs = 0;
    workspace_seen = {};
    table() = {on_gpu(),
               fake("by_name", false, ""),
               fake("picky", true, "head_dim is 8, wanted 64"),
               fake("pickier", true, "dtype is f32, wanted f16"),
               with_workspace(),
               fake("last", true, ""),
               without_memory(),
               unplannable()};
  }

  static PlanOptions named(std::string name) {
    PlanOptions options;
    options.kernel = std::move(name);
    return options;
  }
};

TEST_F(Table, TheFirstThatDoesNotRefuseRuns) {
  const Result<Plan> plan = make_plan(dense_problem());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kernel(), "workspace");
  EXPECT_THAT(std::string(plan->reason()),
              testing::StartsWith(
                  "it is the best of those that take this problem; better ones do not (pick"));
  EXPECT_THAT(std::string(plan->reason()), HasSubstr("picky: head_dim is 8, wanted 64"));
  EXPECT_THAT(std::string(plan->reason()), HasSubstr("pickier: dtype is f32, wanted f16"));
  table().erase(table().begin() + 2, table().begin() + 4);
  EXPECT_THAT(std::string(make_plan(dense_problem())->reason()), HasSubstr("best"));
}

Variant declining(std::string name, std::string sentence) {
  Variant kernel = fake(std::move(name), true, "");
  kernel.declines = [sentence](const ForwardProblem&, const PlanContext&) { return sentence; };
  return kernel;
}

TEST_F(Table, AKernelThatDeclinesLeavesTheChoiceToThoseAfterIt) {
  table() = {declining("slow_here", "would take 9 us"), fake("next", true, "")};
  const Result<Plan> plan = make_plan(dense_problem());
  EXPECT_EQ(plan->kernel(), "next");
  EXPECT_THAT(std::string(plan->reason()), HasSubstr("slow_here: would take 9 us"));
  EXPECT_EQ(make_plan(dense_problem(), named("slow_here"))->kernel(), "slow_here");
  const KernelVerdict verdict = (*explain(dense_problem()))[0];
  EXPECT_EQ(verdict.refusal, "") << "it computes the problem";
  EXPECT_EQ(verdict.declines, "would take 9 us");
  table()[0] = declining("fast_here", "");
  EXPECT_EQ(make_plan(dense_problem())->kernel(), "fast_here");
}

// The choice follows from explain's output, for any behaviour of kernels.
TEST_F(Table, ExplainAndTheChoiceAgree) {
  const char* const refusals[] = {"", "head_dim is 8"};
  const char* const sentences[] = {"", "would take 9 us"};
  for (int code = 0; code < 512; ++code) {  // three kernels: automatic, refuses, declines
    table().clear();
    for (int k = 0; k < 3; ++k) {
      const int bits = code >> (3 * k);
      Variant kernel = declining("kernel" + std::to_string(k), sentences[bits >> 1 & 1]);
      kernel.automatic = (bits & 1) != 0;
      kernel.supports = without_rare(refusals[bits >> 2 & 1]);
      table().push_back(kernel);
    }
    std::string first, first_that_declines;
    const Result<std::vector<KernelVerdict>> verdicts = explain(dense_problem());
    for (const KernelVerdict& verdict : *verdicts) {
      if (!verdict.automatic || !verdict.refusal.empty()) {
        EXPECT_EQ(verdict.declines, "") << "only what may be chosen declines";
        continue;
      }
      std::string& seen = verdict.declines.empty() ? first : first_that_declines;
      if (seen.empty()) seen = verdict.kernel;
    }
    const Result<Plan> plan = make_plan(dense_problem());
    const std::string expected = first.empty() ? first_that_declines : first;
    ASSERT_EQ(plan.ok(), !expected.empty()) << code;
    if (plan.ok()) {
      EXPECT_EQ(plan->kernel(), expected) << code;
    }
  }
}

// A kernel accepts mixes of e4m3 and e5m2 only if it declares that.
TEST_F(Table, AMixOfFp8IsRefusedForAKernelThatDoesNotSayThatItTakesIt) {
  table() = {fake("one", true, ""), fake("kv_apart", true, ""), fake("any", true, "")};
  for (Variant& kernel : table()) add(kernel, feature_sets::kCaches);
  add(table()[1], Feature::k_apart);
  add(table()[2], kMixes);
  const auto expect = [](DType q, DType k, DType v, const std::vector<std::string>& sentences) {
    Problem problem = dense_problem(q);
    problem.k.dtype = k;
    problem.v.dtype = v;
    const Result<std::vector<KernelVerdict>> verdicts = explain(problem);
    ASSERT_TRUE(verdicts.ok()) << verdicts.status().message();
    for (size_t n = 0; n < sentences.size(); ++n) EXPECT_EQ((*verdicts)[n].refusal, sentences[n]);
  };
  constexpr DType kE4m3 = DType::f8e4m3, kE5m2 = DType::f8e5m2;
  const std::string of_k = "k: dtype is f8e5m2, wanted q's f8e4m3";
  const std::string of_v = "v: dtype is f8e5m2, wanted k's f8e4m3";
  expect(kE4m3, kE4m3, kE4m3, {"", "", ""});
  expect(kE4m3, kE5m2, kE5m2, {of_k, "", ""});
  expect(kE4m3, kE4m3, kE5m2, {of_v, of_v, ""});
  expect(kE5m2, kE4m3, kE5m2, {"k: dtype is f8e4m3, wanted q's f8e5m2", of_v, ""});
  expect(DType::f16, kE5m2, kE5m2, {"", "", ""});
  expect(DType::f16, kE4m3, kE5m2, {of_v, of_v, ""});
}

// If Q, K and V have one type, other kernels compute the problem within the operator's meaning.
TEST_F(Table, AConversionIsChosenForMixesAlone) {
  table() = {fake("before", true, "head_dim is 8"), fake("forward_converted:fp8", true, "")};
  table()[1].by_name_where = converted_by_name;
  for (Variant& kernel : table()) kernel.device = DeviceKind::cuda;
  const ForwardProblem one = *resolve(dense_problem(DType::f8e5m2));
  EXPECT_THAT(only_by_name(table()[1], one, {}), HasSubstr("q: is f8e5m2, as k and v are"));
  EXPECT_EQ(only_by_name(table()[0], one, {}), "");
  Problem problem = dense_problem(DType::f8e5m2);
  problem.v.dtype = DType::f8e4m3;
  EXPECT_EQ(only_by_name(table()[1], *resolve(problem), {}), "");
}

TEST_F(Table, AKernelThatDeclinesRunsWhereNoOtherDoes) {
  table() = {fake("picky", true, "head_dim is 8"), declining("slow_here", "would take 9 us"),
             fake("pickier", true, "dtype is f32")};
  const Result<Plan> plan = make_plan(dense_problem());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kernel(), "slow_here");
}

TEST_F(Table, KernelsOfAnotherDeviceAndThoseForExpertsAreNotChosen) {
  table().resize(2);
  const Status status = make_plan(dense_problem()).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_TRUE(make_plan(dense_problem(), named("by_name")).ok());
  EXPECT_EQ(make_plan(dense_problem(), named("gpu")).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(explain(dense_problem())->size(), 1u);
}

TEST_F(Table, WhenAllRefuseAllReasonsAreGiven) {
  table() = {fake("a", true, "reason one"), fake("b", true, "reason two")};
  const Status status = make_plan(dense_problem()).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("a: reason one; b: reason two"));
}

TEST_F(Table, WorkspaceIsChecked) {
  const Result<Plan> plan = make_plan(dense_problem());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->workspace_bytes(), kWorkspace);
  bench::HostProblem host = bench::make_host_problem(dense_problem(), 1);
  alignas(256) std::byte memory[2048];
  const auto refused = [&](void* workspace, size_t bytes, const char* value, const char* wanted) {
    const Status status = plan->run(host.arguments(), workspace, bytes);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), StartsWith("workspace:"));
    EXPECT_THAT(status.message(), HasSubstr(value));
    EXPECT_THAT(status.message(), HasSubstr(wanted));
  };
  refused(nullptr, 2000, "0 bytes", "1000");
  refused(memory, 999, "999 bytes", "1000");
  for (const size_t shift : {1, 8, 128, 255}) {
    refused(memory + shift, kWorkspace, "not aligned", "a multiple of 256");
  }
  EXPECT_EQ(runs, 0);
  EXPECT_TRUE(plan->run(host.arguments(), memory, kWorkspace).ok());
  EXPECT_TRUE(plan->run(host.arguments(), memory + 256, 1500).ok());
  EXPECT_EQ(runs, 2);
  EXPECT_GE(workspace_seen.size(), kWorkspace);
}

TEST_F(Table, OnTheCpuARunWithoutWorkspaceAllocatesIt) {
  const Result<Plan> plan = make_plan(dense_problem());
  bench::HostProblem host = bench::make_host_problem(dense_problem(), 1);
  for (int run = 1; run <= 2; ++run) {
    workspace_seen = {};
    ASSERT_TRUE(plan->run(host.arguments()).ok());
    EXPECT_EQ(runs, run);
    EXPECT_EQ(workspace_seen.size(), kWorkspace);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace_seen.data()) % 256, 0U);
  }
  Variant huge = with_workspace();
  huge.plan = [](const ForwardProblem&, const PlanContext&) -> Result<PlannedKernel> {
    return PlannedKernel{
        .workspace_bytes = size_t{1} << 62,
        .run = [](const Arguments&, std::span<std::byte>, Stream) -> Status { return {}; }};
  };
  table() = {huge};
  const Status status = make_plan(dense_problem())->run(host.arguments());
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
  EXPECT_EQ(status.message(), "workspace: the host has no 4611686018427387904 bytes for it");
}

TEST_F(Table, WorkspaceThatIsNotNeededIsIgnored) {
  const Result<Plan> plan = make_plan(dense_problem(), named("last"));
  bench::HostProblem host = bench::make_host_problem(dense_problem(), 1);
  std::byte memory[2];
  EXPECT_TRUE(plan->run(host.arguments(), memory + 1, 1).ok());
}

TEST_F(Table, MemoryThatRunsOutIsAStatus) {
  bench::HostProblem host = bench::make_host_problem(dense_problem(), 1);
  const Status status = make_plan(dense_problem(), named("no_memory"))->run(host.arguments());
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
}

TEST_F(Table, APlanThatFailsIsAStatus) {
  const Status status = make_plan(dense_problem(), named("unplannable")).status();
  EXPECT_EQ(status.code(), StatusCode::internal);
  EXPECT_EQ(status.message(), "plan: always fails");
}

TEST_F(Table, AKernelHasOnlyThePassesThatItPlans) {
  const Problem problem = dense_problem();
  const Gradients gradients = bench::gradients_of(problem, false);
  Variant trains = fake("trains", true, "");
  trains.plan = {};
  trains.supports = {};
  trains.backward = {
      .supports = everything<BackwardProblem>(),
      .plan = [](const BackwardProblem&, const PlanContext&) -> Result<PlannedBackward> {
        return PlannedBackward{
            .workspace_bytes = 0,
            .run = [](const BackwardArguments&, std::span<std::byte>, Stream) -> Status {
              ++runs;
              return {};
            }};
      }};
  table() = {fake("infers", true, ""), trains};
  EXPECT_EQ(make_plan(problem)->kernel(), "infers");
  const Result<Plan> backward = make_backward_plan(problem, gradients);
  ASSERT_TRUE(backward.ok()) << backward.status().message();
  EXPECT_EQ(backward->kernel(), "trains");
  EXPECT_EQ(explain(problem)->back().refusal, "pass: is forward, wanted backward");
  EXPECT_EQ(explain_backward(problem, gradients)->front().refusal,
            "pass: is backward, wanted forward");
  EXPECT_THAT(make_backward_plan(problem, gradients, named("infers")).status().message(),
              HasSubstr("kernel infers: pass: is backward, wanted forward"));
  table() = {fake("infers", true, "")};
  EXPECT_EQ(make_backward_plan(problem, gradients).status().code(), StatusCode::unsupported);
}

TEST_F(Table, TheEnvironmentForcesAPassOnlyOnKernelsThatHaveIt) {
  Variant both = fake("both", true, "");
  both.backward = {
      .supports = everything<BackwardProblem>(),
      .plan = [](const BackwardProblem&, const PlanContext&) -> Result<PlannedBackward> {
        return PlannedBackward{};
      }};
  table() = {both, fake("infers", true, "")};
  ::setenv("FLASHCORE_KERNEL", "infers", 1);
  const Problem problem = dense_problem();
  const Result<Plan> forward = make_plan(problem);
  const Result<Plan> backward = make_backward_plan(problem, bench::gradients_of(problem, false));
  ::unsetenv("FLASHCORE_KERNEL");
  EXPECT_EQ(forward->kernel(), "infers");
  ASSERT_TRUE(backward.ok()) << backward.status().message();
  EXPECT_EQ(backward->kernel(), "both");
}

TEST_F(Table, DropoutFromMemoryIsForKernelsThatReadIt) {
  Variant reads = fake("reads", true, "");
  add(reads, Feature::dropout_state);
  table() = {fake("old", true, ""), reads};
  Problem problem = dense_problem();
  problem.dropout_state = TensorDesc::contiguous(DType::i64, {2});
  EXPECT_EQ(make_plan(problem)->kernel(), "old") << "without dropout nobody reads it";
  problem.dropout_p = 0.5F;
  EXPECT_EQ(make_plan(problem)->kernel(), "reads");
  EXPECT_EQ(explain(problem)->front().refusal,
            "dropout_state: is given, wanted seed and offset as numbers");
}

TEST_F(Table, MoreOutputsAreForKernelsThatHaveThem) {
  Variant scales = fake("scales", true, ""), both = fake("both", true, "");
  add(scales, Feature::o_scale);
  add(both, feature_sets::kLargest | Feature::o_scale);
  table() = {fake("old", true, ""), scales, both};
  Problem problem = dense_problem();
  problem.o.dtype = DType::f8e4m3;
  EXPECT_EQ(make_plan(problem)->kernel(), "old");
  problem.o_scale = TensorDesc::contiguous(DType::f32, {1, 1});
  EXPECT_EQ(make_plan(problem)->kernel(), "scales");
  EXPECT_EQ(explain(problem)->front().refusal, "o_scale: is given, wanted an O without a scale");
  problem.o_scale.reset();
  for (const auto& [name, flag, largest, output, data, least] : kLargestOutputs) {
    Problem asks = problem;
    asks.*largest = TensorDesc::contiguous(DType::f32, {1, 1});
    EXPECT_EQ(make_plan(asks)->kernel(), "both");
    EXPECT_EQ(explain(asks)->front().refusal,
              std::string(name) + ": is given, wanted O and LSE only");
  }
}

TEST_F(Table, NothingRunsOnBadArguments) {
  const Result<Plan> plan = make_plan(dense_problem(), named("last"));
  EXPECT_FALSE(plan->run(Arguments{}).ok());
  bench::HostProblem host = bench::make_host_problem(packed_problem(), 1);
  host.at("cu_seqlens_q").set(0, 1);
  EXPECT_FALSE(make_plan(packed_problem(), named("last"))->run(host.arguments()).ok());
  EXPECT_EQ(runs, 0);
}

}  // namespace
}  // namespace flashcore
