#include "tests/cuda/device/promises.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace flashcore {
namespace {

// Lengths that depend on the seed are long for these two, and begin to change at kFirstSeed.
constexpr uint64_t kSeed = 11, kOtherSeed = 23, kFirstSeed = 6;

TEST_P(Promises, PassesItsGate) {
  with_inputs(2, kSeed,
              [](auto& host) { expect_its_gate(GetParam().options, host, GetParam().limits); });
}

TEST_P(Promises, GivesTheSameBitsEveryTimeWhateverTheWorkspaceHeld) {
  with_inputs(2, kSeed, [](auto& host) {
    const Plan plan = plan_for(host);
    run_once(plan, host, 0);
    const Outputs first = outputs_of(host);
    for (const int fill : {0xFF, 0x7F, 0x00}) {
      run_once(plan, host, fill);
      EXPECT_TRUE(outputs_of(host) == first) << "workspace of bytes " << fill;
    }
  });
}

// What entry b of a batch has in a tensor, or what all entries share, as the inputs of one alone.
void copy_entry(const bench::HostTensor& from, bench::HostTensor& to, int64_t b) {
  const int64_t first = from.elements() == to.elements() ? 0 : b * to.elements();
  for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(first + i));
}

TEST_P(Promises, ARowAloneHasTheBitsThatItHasInABatch) {
  if (!GetParam().is_alone_as_in_batch) GTEST_SKIP() << "may depend on the batch";
  constexpr int64_t kBatch = 5;
  with_inputs(kBatch, kSeed, [](auto& all) {
    run_once(plan_for(all), all);
    auto one = like(all, 1, kOtherSeed);
    const Plan plan = plan_for(one);
    for (const int64_t b : {int64_t{0}, int64_t{1}, int64_t{2}, kBatch - 1}) {
      for_each_tensor(one, [&](std::string_view name, bench::HostTensor& tensor, bool is_output) {
        if (!is_output) copy_entry(all.at(name), tensor, b);
      });
      run_once(plan, one);
      for_each_tensor(one, [&](const std::string& name, bench::HostTensor& alone, bool is_output) {
        if (!is_output) return;
        for (int64_t i = 0; i < alone.elements(); ++i) {
          const double batched = all.at(name).get(b * alone.elements() + i);
          ASSERT_EQ(alone.get(i), batched) << name << " element " << i << " of entry " << b;
        }
      });
    }
  });
}

// Two runs in a graph, over and over: each leaves what the next needs.
TEST_P(Promises, AGraphReplaysOnNewInputs) {
  with_inputs(2, kFirstSeed, [](auto& host) {
    const Plan plan = plan_for(host);
    bench::poison_outputs(host);
    DeviceTensors tensors(host);
    const Workspace workspace(plan.workspace_bytes(), 0xFF);
    const OwnStream stream;
    const auto args = tensors.arguments(host);
    const Graph graph(stream.get(), [&] {
      for (int run = 0; run < 2; ++run) {
        const Status status =
            plan.run(args, workspace.data(), workspace.bytes(), Stream{stream.get()});
        EXPECT_TRUE(status.ok()) << status.message();
      }
    });
    for (uint64_t seed = kFirstSeed; seed < kFirstSeed + 6; ++seed) {
      auto now = like(host, 2, seed);
      run_once(plan, now);
      const Outputs wanted = outputs_of(now);
      bench::poison_outputs(now);
      tensors.upload(now);
      graph.launch();
      tensors.download_outputs(now);
      EXPECT_TRUE(outputs_of(now) == wanted) << "inputs of seed " << seed;
    }
  });
}

TEST_P(Promises, RunsOfOnePlanOnTwoStreamsDoNotDisturbEachOther) {
  with_inputs(2, kSeed, [](auto& first) {
    auto second = like(first, 2, kOtherSeed);
    const Plan plan = plan_for(first);
    run_once(plan, first);
    run_once(plan, second);
    const Outputs wanted[] = {outputs_of(first), outputs_of(second)};
    bench::poison_outputs(first);
    bench::poison_outputs(second);
    const DeviceTensors tensors[] = {DeviceTensors(first), DeviceTensors(second)};
    const Workspace workspaces[] = {{plan.workspace_bytes(), 0}, {plan.workspace_bytes(), 0}};
    const OwnStream streams[2];
    for (int i = 0; i < 20; ++i) {
      for (const size_t r : {size_t{0}, size_t{1}}) {
        const auto args = tensors[r].arguments(r == 0 ? first : second);
        EXPECT_TRUE(
            plan.run(args, workspaces[r].data(), workspaces[r].bytes(), Stream{streams[r].get()})
                .ok());
      }
    }
    tensors[0].download_outputs(first);
    tensors[1].download_outputs(second);
    EXPECT_TRUE(outputs_of(first) == wanted[0]);
    EXPECT_TRUE(outputs_of(second) == wanted[1]);
  });
}

// Each run reads as Q what the one before wrote as O. Started early or not, the bits are equal.
TEST_P(Promises, EarlyStartsChangeNothing) {
  if (!GetParam().starts_early) GTEST_SKIP() << "does not start early, or O is no Q";
  with_inputs(2, kSeed, [](auto& host) {
    if constexpr (!kIsBackward<std::remove_reference_t<decltype(host)>>) {
      constexpr int kRuns = 41;
      Outputs wanted;
      for (const bool early : {false, true}) {
        PlanOptions options = GetParam().options;
        options.early_start = early;
        const Plan plan = plan_of(host, options);
        bench::poison_outputs(host);
        const DeviceTensors tensors(host);
        const Workspace workspace(plan.workspace_bytes(), 0xFF);
        const OwnStream stream;
        Arguments args = tensors.arguments(host);
        void* const turns[] = {const_cast<void*>(args.q), args.o};
        // What of Q is not in O's columns.
        const bench::HostTensor& q = host.at("q");
        ASSERT_EQ(cudaMemcpy(turns[1], turns[0], q.memory().size() - 2 * q.origin(),
                             cudaMemcpyDeviceToDevice),
                  cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        for (int run = 0; run < kRuns; ++run) {
          args.q = turns[run % 2];
          args.o = turns[(run + 1) % 2];
          const Status status =
              plan.run(args, workspace.data(), workspace.bytes(), Stream{stream.get()});
          ASSERT_TRUE(status.ok()) << status.message();
        }
        tensors.download_outputs(host);
        if (!early) wanted = outputs_of(host);
      }
      EXPECT_TRUE(outputs_of(host) == wanted);
    }
  });
}

}  // namespace
}  // namespace flashcore
