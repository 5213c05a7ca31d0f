// forward_sm90_latency, forward_sm90_latency:wide and forward_sm80_latency on a GPU, against the
// fp64 reference: from one tile of keys up to rings that go round, tails, masks, lengths, values
// that are not finite, repeatability.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/random_problem.hpp"
#include "bench/device/execution.hpp"
#include "bench/gate/gates.hpp"
#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/gpu.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

// A kernel, and whether its plans may not look at the batch: forward_sm90_latency then takes one
// block for a short tile, where it would take two.
struct Variant {
  std::string kernel;
  bool batch_invariant = false;
};

const Variant kHopper{"forward_sm90_latency"};
const Variant kHopperInvariant{"forward_sm90_latency", true}, kMedium{"forward_sm90_latency:wide"};
const Variant kAmpere{"forward_sm80_latency"};
const Device kGpu = first_gpu();

PlanOptions options(const Variant& variant = kHopper) {
  PlanOptions chosen = on_gpu(variant.kernel);
  chosen.batch_invariant = variant.batch_invariant;
  return chosen;
}

class ForwardSmall : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!runs_here(GetParam().kernel)) {
      GTEST_SKIP() << "there is no GPU that runs " << GetParam().kernel;
    }
  }
};
class ForwardSm90Latency : public ForwardSmall {};
class ForwardSm80Latency : public ForwardSmall {};

INSTANTIATE_TEST_SUITE_P(Hopper, ForwardSmall, testing::Values(kHopper, kHopperInvariant));
INSTANTIATE_TEST_SUITE_P(Medium, ForwardSmall, testing::Values(kMedium));
INSTANTIATE_TEST_SUITE_P(Ampere, ForwardSmall, testing::Values(kAmpere));
INSTANTIATE_TEST_SUITE_P(Ampere, ForwardSm80Latency, testing::Values(kAmpere));
INSTANTIATE_TEST_SUITE_P(Hopper, ForwardSm90Latency, testing::Values(kHopper));

// Runs on poisoned outputs.
Status run_on_gpu(bench::HostProblem& host, const PlanOptions& chosen) {
  bench::poison_outputs(host);
  const Result<Plan> plan = make_plan(host.problem, chosen);
  if (!plan.ok()) return plan.status();
  Result<bench::Execution> execution = bench::Execution::prepare(*plan, kGpu, host);
  if (!execution.ok()) return execution.status();
  if (Status status = execution->run(); !status.ok()) return status;
  return execution->fetch();
}

// The sentence of the first gate that failed, or nothing.
std::string failure_of(bench::HostProblem& host, const bench::Reference& reference,
                       const PlanOptions& chosen) {
  if (const Status status = run_on_gpu(host, chosen); !status.ok()) return status.message();
  return bench::judge(host, reference).failure;
}

// Gates a problem, then the same again: equal bits.
void check(bench::HostProblem& host, const PlanOptions& chosen) {
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  ASSERT_EQ(failure_of(host, *reference, chosen), "") << bench::describe(host.problem);
  const bench::HostTensor first = host.at("o");
  ASSERT_EQ(failure_of(host, *reference, chosen), "") << bench::describe(host.problem);
  ASSERT_TRUE(host.at("o").same_elements(first)) << bench::describe(host.problem);
}

bench::Case one(int64_t heads, int64_t seqlen_q, int64_t seqlen_kv, int64_t head_dim,
                DType dtype = DType::f16) {
  bench::Case made{.name = "", .dtype = dtype};
  made.heads_q = made.heads_kv = heads;
  made.seqlen_q = seqlen_q;
  made.seqlen_kv = seqlen_kv;
  made.head_dim = head_dim;
  return made;
}

void check_case(const Variant& variant, const bench::Case& made) {
  bench::HostProblem host = bench::make_host_problem(bench::to_problem(made), 1);
  check(host, options(variant));
}

TEST_P(ForwardSmall, OneTile) { check_case(GetParam(), one(1, 64, 64, 64)); }
TEST_P(ForwardSmall, OneTileEach) { check_case(GetParam(), one(1, 64, 256, 64)); }
TEST_P(ForwardSmall, TwoTilesEach) { check_case(GetParam(), one(1, 64, 512, 64)); }
TEST_P(ForwardSmall, Mission) { check_case(GetParam(), one(8, 512, 512, 64)); }
TEST_P(ForwardSmall, MissionCausal) {
  bench::Case made = one(8, 512, 512, 64);
  made.causal = true;
  check_case(GetParam(), made);
}
TEST_P(ForwardSmall, MissionBf16) { check_case(GetParam(), one(8, 512, 512, 64, DType::bf16)); }
TEST_P(ForwardSmall, ThreeTilesEach) { check_case(GetParam(), one(1, 64, 768, 64)); }
TEST_P(ForwardSmall, SlotsReused) { check_case(GetParam(), one(2, 128, 2048, 64)); }
TEST_P(ForwardSmall, HeadDim128OneTile) { check_case(GetParam(), one(1, 64, 64, 128)); }
TEST_P(ForwardSmall, HeadDim128) { check_case(GetParam(), one(4, 256, 512, 128)); }
TEST_P(ForwardSmall, HeadDim128SlotsReused) { check_case(GetParam(), one(2, 128, 2048, 128)); }
TEST_P(ForwardSmall, HeadDim96) { check_case(GetParam(), one(2, 128, 256, 96)); }

// More tiles of queries than SMs: blocks share SMs, or compute a tile alone.
TEST_P(ForwardSmall, ManyHeads) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t seqlen_kv : {65, 256, 300}) {
      for (const bool causal : {false, true}) {
        bench::Case made = one(25, 130, seqlen_kv, head_dim, DType::bf16);
        made.causal = causal;
        check_case(GetParam(), made);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ForwardSmall, Tails) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t seqlen_q : {1, 63, 65, 130}) {
        for (const int64_t seqlen_kv : {0, 1, 63, 65, 200, 321, 700}) {
          bench::Case made = one(2, seqlen_q, seqlen_kv, head_dim, dtype);
          check_case(GetParam(), made);
          made.causal = true;
          check_case(GetParam(), made);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ForwardSmall, ValuesThatAreNotFinite) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const char* const name : {"q", "k", "v"}) {
    for (const double value : {kNaN, kInf}) {
      if (value == kInf && std::string(name) != "v") continue;
      for (const int64_t key : {3, 100, 199}) {
        bench::Case made = one(2, 200, 200, 64);
        made.causal = true;
        bench::HostProblem host = bench::make_host_problem(bench::to_problem(made), 5);
        host.at(name).set(key * 64 + 7, value);
        check(host, options(GetParam()));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Outputs of 1e-6 and less are as precise as their type: what parts of a row's keys add to them
// does not go over in a format that is coarser there. The largest error is at most half of fp16's
// least step, below which it has no numbers, and the types' relative limit of the largest output.
TEST_P(ForwardSmall, SmallOutputs) {
  struct Kind {
    DType dtype;
    double scale, half_step;
  };
  for (const Kind& kind : {Kind{DType::f16, 0x1p-16, 0x1p-25}, Kind{DType::bf16, 0x1p-18, 0}}) {
    for (const auto& [heads, seqlen_kv, head_dim] :
         {std::tuple{8, 512, 64}, {8, 500, 64}, {2, 1000, 64}, {8, 512, 128}, {25, 256, 64}}) {
      bench::HostProblem host = bench::make_host_problem(
          bench::to_problem(one(heads, 400, seqlen_kv, head_dim, kind.dtype)), 11);
      for (int64_t i = 0; i < int64_t{heads} * seqlen_kv * head_dim; ++i) {
        host.at("v").set(i, kind.scale * host.at("v").get(i));
      }
      const Result<bench::Reference> reference = bench::compute_reference(host);
      ASSERT_TRUE(reference.ok()) << reference.status().message();
      const Status status = run_on_gpu(host, options(GetParam()));
      ASSERT_TRUE(status.ok()) << status.message();
      double largest = 0, error = 0;
      for (std::size_t i = 0; i < reference->o.size(); ++i) {
        const double right = reference->o[i];
        largest = std::max(largest, std::abs(right));
        error = std::max(error, std::abs(host.at("o").get(static_cast<int64_t>(i)) - right));
      }
      EXPECT_LE(error, kind.half_step + bench::gate_limits(kind.dtype).relative_error * largest)
          << bench::describe(host.problem) << ", largest output " << largest;
    }
  }
}

// What a sample of V says of its size is wrong: rows that differ much, most of them nothing, or the
// first ones much smaller than the others. Values are not above 1: a probability's own rounding
// times more than that would not pass for any kernel.
TEST_P(ForwardSmall, ValuesOfManySizes) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int kind : {0, 1, 2}) {
        bench::HostProblem host =
            bench::make_host_problem(bench::to_problem(one(2, 128, 512, head_dim, dtype)), 13);
        for (int64_t i = 0; i < 2 * 512 * head_dim; ++i) {
          const int64_t row = i / head_dim % 512;
          const double sizes[] = {row % 3 == 0 ? 1.0 : 0x1p-16, row % 64 == 63 ? 1.0 : 0.0,
                                  row < 400 ? 0x1p-20 : 1.0};
          host.at("v").set(i, sizes[kind] * host.at("v").get(i));
        }
        check(host, options(GetParam()));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Draws until `wanted` problems were accepted, or time is up.
void check_random(const Variant& variant, const bench::RandomSpace& space, uint64_t seed,
                  int wanted, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int checked = 0;
  for (; checked < wanted && elapsed() < seconds; ++seed) {
    const bench::RandomDraw draw(seed, space);
    if (!make_plan(draw.problem(), options(variant)).ok()) continue;
    bench::HostProblem host = draw.fill();
    check(host, options(variant));
    if (testing::Test::HasFatalFailure()) {
      fmt::print("seed {}\n", seed);
      return;
    }
    ++checked;
  }
  fmt::print("{} random problems\n", checked);
  EXPECT_GT(checked, 0);
}

// Device time is dear: the environment says how long to go on.
double seconds_to_spend() {
  const char* const text = std::getenv("FLASHCORE_TEST_SECONDS");
  return text == nullptr ? 60 : std::atof(text);
}

// Lengths and diagonals of each entry's own: entries of 0, 31 and 88 queries, most rows without a
// key.
TEST_P(ForwardSmall, EntriesThatDiffer) {
  bench::HostProblem host = bench::random_problem(1024);
  ASSERT_TRUE(host.problem.seqlens_q && host.problem.causal_offsets);
  check(host, options(GetParam()));
}

// Not chosen by name: the table's own choice.
TEST_P(ForwardSm90Latency, IsTheChoiceForTheMission) {
  PlanOptions chosen = options();
  chosen.kernel.clear();
  const Problem problem = bench::to_problem(one(8, 512, 512, 64));
  const Result<Plan> plan = make_plan(problem, chosen);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kernel(), kHopper.kernel) << plan->reason();
  bench::HostProblem host = bench::make_host_problem(problem, 2);
  check(host, chosen);
}

// All that a kernel for small problems takes: types, windows, packed batches, lengths, layouts.
bench::RandomSpace plain_scores(int64_t largest_seqlen) {
  bench::RandomSpace space;
  space.any_score = false;
  space.largest_seqlen = largest_seqlen;
  return space;
}

TEST_P(ForwardSmall, RandomShort) {
  check_random(GetParam(), plain_scores(160), 0, 2000, seconds_to_spend());
}

// More keys than are in shared memory at once.
TEST_P(ForwardSmall, RandomLong) {
  check_random(GetParam(), plain_scores(1400), 100000, 1000, seconds_to_spend());
}

// A second and third entry, which a tensor map of packed rows does not count.
TEST_P(ForwardSmall, PackedBatch) {
  Problem problem;
  const auto rows = [](int64_t count, int64_t heads) {
    return TensorDesc::contiguous(DType::f16, {count, heads, 64});
  };
  problem.q = problem.o = rows(300, 2);
  problem.k = problem.v = rows(800, 2);
  problem.cu_seqlens_q = problem.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {4});
  bench::HostProblem host = bench::make_host_problem(problem, 7);
  const int64_t q[] = {0, 70, 70, 300}, kv[] = {0, 130, 200, 800};
  for (int64_t i = 0; i < 4; ++i) {
    host.at("cu_seqlens_q").set(i, static_cast<double>(q[i]));
    host.at("cu_seqlens_kv").set(i, static_cast<double>(kv[i]));
  }
  check(host, options(GetParam()));
}

// Scores that grow from tile to tile, by more than fp16 holds relative to the first: every warp
// takes its way out.
TEST_P(ForwardSmall, ScoresThatGrow) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const int64_t seqlen_kv : {512, 900}) {
        bench::HostProblem host =
            bench::make_host_problem(bench::to_problem(one(2, 100, seqlen_kv, head_dim, dtype)), 9);
        for (int64_t row = 0; row < 2 * 100; ++row) host.at("q").set(row * head_dim, 8);
        for (int64_t row = 0; row < 2 * seqlen_kv; ++row) {
          const auto tile = static_cast<double>(row % seqlen_kv / 64);
          host.at("k").set(row * head_dim, 4 * tile);
        }
        check(host, options(GetParam()));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// As failure_of, with a kernel of the table for a device that a block has less shared memory on.
std::string failure_with(bench::HostProblem& host, const bench::Reference& reference,
                         const std::string& name, int64_t shared_memory) {
  const Result<ForwardProblem> resolved = resolve(host.problem);
  if (!resolved.ok()) return resolved.status().message();
  PlanContext context;
  for (const DeviceInfo& device : devices()) {
    if (device.device.kind == kGpu.kind) context.device = device;
  }
  context.device.shared_memory_per_block = shared_memory;
  bench::poison_outputs(host);
  const DeviceTensors tensors(host);
  const Result<PlannedKernel> planned = find_variant(name)->plan(*resolved, context);
  if (!planned.ok()) return planned.status().message();
  const Status status = planned->run(tensors.arguments(host), {}, Stream{});
  if (!status.ok()) return status.message();
  tensors.download_outputs(host);
  return bench::judge(host, reference).failure;
}

// The tiles for 99 KB, which a GPU with more does not choose.
TEST_P(ForwardSm80Latency, SmallBlocks) {
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t seqlen_kv : {64, 300, 700}) {
      for (const bool causal : {false, true}) {
        bench::Case made = one(3, 200, seqlen_kv, head_dim, DType::bf16);
        made.causal = causal;
        bench::HostProblem host = bench::make_host_problem(bench::to_problem(made), 4);
        const Result<bench::Reference> reference = bench::compute_reference(host);
        ASSERT_TRUE(reference.ok()) << reference.status().message();
        EXPECT_EQ(failure_with(host, *reference, kAmpere.kernel, 99 * 1024), "")
            << bench::describe(host.problem);
      }
    }
  }
}

std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const Variant& variant : {kHopper, kHopperInvariant, kMedium, kAmpere}) {
    for (bench::Case made : {one(8, 512, 512, 64), one(25, 130, 300, 128, DType::bf16)}) {
      made.causal = made.dtype == DType::bf16;
      const auto make = [made](int64_t batch, uint64_t seed) {
        bench::Case many = made;
        many.batch = batch;
        return bench::make_host_problem(bench::to_problem(many), seed);
      };
      all.push_back({.name = made.causal ? "tails" : "mission",
                     .options = options(variant),
                     .make = make,
                     .is_alone_as_in_batch = variant.batch_invariant,
                     .starts_early = variant.kernel != kAmpere.kernel});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(ForwardLatency, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore
