// What is launched for 20,000 random problems on GPUs of several generations: a digest of every launch's compiled
// kernel, grid and settings. What changes here changes what users run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "plan/kernel_choice.hpp"
#include "tests/cuda/random_passes.hpp"

namespace flashcore {
namespace {

struct Launched {
  int64_t chosen = 0, launches = 0;
  tests::Digest digest;
};

// Only these gradients are written: what was recorded had no others.
BackwardArguments backward_arguments(size_t offset) {
  BackwardArguments args;
  args.forward = fake::arguments(offset);
  args.d_o = args.dq = args.dk = args.dv = args.forward.o;
  return args;
}

// "sm90 fp16_config0" of "forward_sm90_throughput:fp16_config0": families may be joined.
std::string instance_of(std::string_view stub) {
  const std::string_view family = stub.substr(0, stub.find(':'));
  const size_t arch = family.find("sm");
  return fmt::format("{} {}", arch == std::string_view::npos ? "" : family.substr(arch, 4),
                     stub.substr(family == stub ? 0 : family.size() + 1));
}

template <class Planned>
void run(const Planned& planned, size_t offset, Launched& launched) {
  (void)fake::take_launches();
  const std::span<std::byte> workspace = fake::workspace(planned.workspace_bytes);
  Status status;
  if constexpr (std::is_same_v<Planned, PlannedKernel>) {
    status = planned.run(fake::arguments(offset), workspace, Stream{});
  } else {
    status = planned.run(backward_arguments(offset), workspace, Stream{});
  }
  launched.digest.add(fmt::format("{}\n", static_cast<int>(status.code())));
  for (const fake::Launch& one : fake::take_launches()) {
    launched.digest.add(fmt::format("{} {}\n", instance_of(one.kernel), one.geometry));
    ++launched.launches;
  }
}

Result<PlannedKernel> plan(const Variant& kernel, const ForwardProblem& p,
                           const PlanContext& context) {
  return kernel.plan(p, context);
}
Result<PlannedBackward> plan(const Variant& kernel, const BackwardProblem& p,
                             const PlanContext& context) {
  return kernel.backward.plan(p, context);
}

// What is chosen, run with pointers that wide copies reach, and with those that they do not.
template <class AnyProblem>
void add(const AnyProblem& p, PlanContext context, Launched& launched) {
  KernelChoice choice = choose_kernel(p, context);
  if (choice.kernel == nullptr) return;
  context.config = std::move(choice.config);
  const auto planned = plan(*choice.kernel, p, context);
  launched.digest.add(fmt::format("{}\n", static_cast<int>(planned.status().code())));
  if (!planned.ok()) return;
  launched.digest.add(fmt::format("{} bytes\n", planned->workspace_bytes));
  ++launched.chosen;
  for (const size_t offset : {0, 8}) run(*planned, offset, launched);
}

constexpr tests::Recorded kWanted = {20000, 1000,
                                     R"(75  forward       0 chosen      0 launches  cbf29ce484222325
75  backward      0 chosen      0 launches  cbf29ce484222325
80  forward   11199 chosen  27137 launches  da4e1f66ae513ca2
80  backward   3367 chosen  33358 launches  256dfe6117e2fcce
86  forward   11199 chosen  27127 launches  6c4d3e4cc40c0655
86  backward   3367 chosen  31484 launches  26e9d608740037f5
89  forward   11199 chosen  27107 launches  78e95a9557985bf5
89  backward   3367 chosen  31484 launches  26e9d608740037f5
90  forward   11199 chosen  28052 launches  e668ceb1cf99ef7b
90  backward   3367 chosen  30919 launches  cd74961a06977244
100 forward   11197 chosen  27161 launches  cf808e8b09aff71b
100 backward   3367 chosen  33358 launches  256dfe6117e2fcce
120 forward   11197 chosen  27166 launches  10c4cd5c80e7295a
120 backward   3367 chosen  31484 launches  26e9d608740037f5
)",
                                     "80a3cccb8e89d773"};

TEST(Launches, AreThoseThatWereRecorded) {
  constexpr size_t kCount = std::size(tests::kGpus);
  fake::forget();
  std::array<std::array<Launched, 2>, kCount> all;
  tests::for_random_passes(kWanted.count(), [&](const tests::RandomPass& pass) {
    for (size_t gpu = 0; gpu < kCount; ++gpu) {
      fake::use(tests::kGpus[gpu]);
      PlanContext context = fake::context_of(tests::kGpus[gpu]);
      context.batch_invariant = pass.batch_invariant;
      std::visit([&](const auto& p) { add(p, context, all[gpu][pass.problem.index()]); },
                 pass.problem);
    }
  });
  fake::forget();
  std::string text;
  for (size_t gpu = 0; gpu < kCount; ++gpu) {
    for (const size_t backward : {0, 1}) {
      const Launched& one = all[gpu][backward];
      text +=
          fmt::format("{:<3} {:<8} {:>6} chosen {:>6} launches  {:016x}\n",
                      tests::kGpus[gpu].compute_capability, backward != 0 ? "backward" : "forward",
                      one.chosen, one.launches, one.digest.value);
    }
  }
  kWanted.expect(text);
}

}  // namespace
}  // namespace flashcore
