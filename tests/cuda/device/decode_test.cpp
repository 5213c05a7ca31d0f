// What the kernels for caches promise on a GPU, besides what all do: thousands of steps of one captured graph, bits that
// do not depend on the batch, page indices reported.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/cache_subject.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

PlanOptions options_of(const Subject& s) {
  PlanOptions options = on_gpu(s.kernel);
  options.batch_invariant = s.batch_invariant;
  return options;
}

class DecodeDevice : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (!runs_here(GetParam().kernel)) {
      GTEST_SKIP() << "no GPU that " << GetParam().kernel << " runs on";
    }
  }
};

// The last of several queries sees them.
TEST_P(DecodeDevice, ValuesThatAMaskRemovesMayBeAnything) {
  const Subject& s = GetParam();
  if (!s.pairs) GTEST_SKIP() << "there is no mask";
  bench::HostProblem host = make_problem(s, {s.capacity(), 90}, 8);
  const int64_t pages = host.problem.page_table->shape[1], keys = pages * s.page_size;
  for (int64_t key = 5; key < s.capacity(); key += 16) {
    for (int64_t i = 0; i < s.seqlen_q; ++i) {
      host.at("mask").set(i * keys + key, i > 0 && i == s.seqlen_q - 1 ? 1 : 0);
    }
    for (int64_t b = 0; b < 2; ++b) {
      const auto page =
          static_cast<int64_t>(host.at("page_table").get(b * pages + key / s.page_size));
      for (int64_t h = 0; h < s.kv_heads(); ++h) {
        const int64_t row = (page * s.kv_heads() + h) * s.page_size + key % s.page_size;
        for (int64_t d = 0; d < s.head_dim; ++d) {
          host.at("v").set(row * s.head_dim + d, std::numeric_limits<double>::quiet_NaN());
        }
      }
    }
  }
  expect_its_gate(options_of(s), host);
}

// An entry's pages of a cache for `batch` entries, as a cache for it alone has them.
bench::HostProblem alone(const Subject& s, const bench::HostProblem& all, int64_t b,
                         int64_t length) {
  bench::HostProblem one = make_problem(s, {length}, 99);
  const auto copy = [](const bench::HostTensor& from, int64_t first, bench::HostTensor& to,
                       int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to.set(at + i, from.get(first + i));
  };
  const int64_t rows = all.at("q").elements() / all.problem.q.shape[0];
  copy(all.at("q"), b * rows, one.at("q"), 0, rows);
  const int64_t pages = one.problem.page_table->shape[1];
  for (int64_t n = 0; n < pages; ++n) {
    const auto from = static_cast<int64_t>(all.at("page_table").get(b * pages + n));
    const auto to = static_cast<int64_t>(one.at("page_table").get(n));
    for (const char* const name : {"k", "v"}) {
      const int64_t page = all.at(name).elements() / all.problem.k.shape[0];
      copy(all.at(name), from * page, one.at(name), to * page, page);
    }
  }
  for (const char* const name : {"k_scale", "v_scale", "bias", "mask"}) {
    if (one.has(name)) copy(all.at(name), 0, one.at(name), 0, one.at(name).elements());
  }
  return one;
}

TEST_P(DecodeDevice, BatchInvariantARowAloneHasTheBitsThatItHasInABatch) {
  if (!GetParam().batch_invariant) GTEST_SKIP() << "batch_invariant is not set";
  const std::vector<int64_t> lengths = {500, 0, 40, GetParam().capacity()};
  bench::HostProblem all = make_problem(GetParam(), lengths, 5);
  run_once(plan_of(all, options_of(GetParam())), all);
  for (const int64_t b : {int64_t{0}, int64_t{2}, int64_t{3}}) {
    bench::HostProblem one = alone(GetParam(), all, b, lengths[static_cast<size_t>(b)]);
    run_once(plan_of(one, options_of(GetParam())), one);
    for (const char* const name : {"o", "lse"}) {
      const bench::HostTensor& found = one.at(name);
      for (int64_t i = 0; i < found.elements(); ++i) {
        ASSERT_EQ(found.get(i), all.at(name).get(b * found.elements() + i))
            << name << " element " << i << " of entry " << b;
      }
    }
  }
}

TEST_P(DecodeDevice, AnIndexOutOfRangeIsClampedAndReported) {
  bench::HostProblem host = make_problem(GetParam(), {60, 300}, 6);
  const Plan plan = plan_of(host, options_of(GetParam()));
  bench::HostTensor& table = host.at("page_table");
  // Past the keys in use: not read.
  table.set(table.elements() - 1, 1e9);
  DeviceTensors tensors(host);
  const Workspace workspace(plan.workspace_bytes(), 0);
  const auto status_word = [&] {
    const Arguments args = tensors.arguments(host);
    EXPECT_TRUE(plan.run(args, workspace.data(), workspace.bytes()).ok());
    int32_t word = -1;
    EXPECT_EQ(cudaMemcpy(&word, args.page_status, sizeof word, cudaMemcpyDeviceToHost),
              cudaSuccess);
    return word;
  };
  EXPECT_EQ(status_word(), 0);
  for (const double wrong : {-1.0, static_cast<double>(host.problem.k.shape[0]),
                             static_cast<double>(std::numeric_limits<int32_t>::min())}) {
    table.set(0, wrong);
    host.at("page_status").set(0, 0);
    tensors.upload(host);
    EXPECT_EQ(status_word(), 1) << wrong;
  }
}

// One plan with tensors of its own, for what serving does: the same call at every step, eagerly or from
// a graph, with lengths and page tables that change in the device's memory.
class Step {
 public:
  Step(const Subject& subject, int64_t batch, uint64_t seed)
      : host_(make_problem(subject, std::vector<int64_t>(static_cast<size_t>(batch), 1), seed)),
        plan_(plan_of(host_, options_of(subject))),
        tensors_(host_),
        workspace_(plan_.workspace_bytes(), 0xFF) {}

  void run(cudaStream_t stream) const {
    const Status status =
        plan_.run(tensors_.arguments(host_), workspace_.data(), workspace_.bytes(), Stream{stream});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void set(const std::vector<int32_t>& lengths, const std::vector<int32_t>& table,
           cudaStream_t stream) const {
    const Arguments args = tensors_.arguments(host_);
    for (const auto& [to, from] :
         {std::pair{args.seqlens_kv, &lengths}, std::pair{args.page_table, &table}}) {
      EXPECT_EQ(cudaMemcpyAsync(const_cast<int32_t*>(to), from->data(),
                                from->size() * sizeof(int32_t), cudaMemcpyHostToDevice, stream),
                cudaSuccess);
    }
  }
  // Judges what O and LSE hold.
  void judge(const std::vector<int32_t>& lengths, const std::vector<int32_t>& table) const {
    bench::HostProblem host = host_;
    host.at("seqlens_kv").assign(lengths);
    host.at("page_table").assign(table);
    tensors_.download_outputs(host);
    const Result<bench::Reference> reference = bench::compute_reference(host);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    const bench::Verdict verdict = bench::judge(host, *reference);
    EXPECT_TRUE(verdict.passed) << verdict.failure;
  }
  int64_t table_size() const { return host_.at("page_table").elements(); }
  int64_t pages() const { return host_.problem.k.shape[0]; }
  // What O holds of `count` entries from `first` on, after filling it with NaN for the next step.
  std::vector<std::byte> take_output(int64_t first, int64_t count, cudaStream_t stream) const {
    auto* const o = static_cast<std::byte*>(tensors_.arguments(host_).o);
    const bench::HostTensor& tensor = host_.at("o");
    const size_t all = tensor.memory().size() - 2 * tensor.origin();
    const auto entry = static_cast<size_t>(tensor.desc().stride[0]) * size_of(tensor.desc().dtype);
    const size_t begin = static_cast<size_t>(first) * entry;
    std::vector<std::byte> bytes(std::min(static_cast<size_t>(count) * entry, all - begin));
    EXPECT_EQ(
        cudaMemcpyAsync(bytes.data(), o + begin, bytes.size(), cudaMemcpyDeviceToHost, stream),
        cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(o, 0xFF, all, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return bytes;
  }

 private:
  bench::HostProblem host_;
  Plan plan_;
  DeviceTensors tensors_;
  Workspace workspace_;
};

class DecodeReplay : public DecodeDevice {};

// Two plans in one graph, captured while every length is 1, so that items are cut into more parts at
// most replays, with other pages at each. Entries without a key are the padding of a batch. The bits of
// some steps are also judged.
TEST_P(DecodeReplay, TenThousandStepsOfTwoPlansHaveTheBitsOfEagerRuns) {
  constexpr int64_t kBatch = 6;
  constexpr int kJudged = 2500;
  const bool sampled = GetParam().latent();  // one entry at each step: all take too long to copy
  Subject several = GetParam();
  several.seqlen_q = 3;
  const OwnStream stream;
  const Step replayed[] = {{GetParam(), kBatch, 21}, {several, kBatch, 22}};
  const Step eager[] = {{GetParam(), kBatch, 21}, {several, kBatch, 22}};
  const Graph graph(stream.get(), [&] {
    for (const Step& step : replayed) step.run(stream.get());
  });
  std::mt19937 random(23);
  std::vector<int32_t> lengths(kBatch), pages(static_cast<size_t>(replayed[0].pages()));
  std::iota(pages.begin(), pages.end(), 0);
  for (int n = 0; n < 10000; ++n) {
    for (int32_t& length : lengths) {
      length = random() % 4 == 0 ? 0 : static_cast<int32_t>(random() % (GetParam().capacity() + 1));
    }
    const int64_t first = sampled ? random() % kBatch : 0;
    std::shuffle(pages.begin(), pages.end(), random);
    const std::vector<int32_t> table(pages.begin(), pages.begin() + replayed[0].table_size());
    for (const Step* const steps : {replayed, eager}) {
      for (int plan = 0; plan < 2; ++plan) steps[plan].set(lengths, table, stream.get());
    }
    graph.launch();
    for (const Step& step : eager) step.run(stream.get());
    for (int plan = 0; plan < 2; ++plan) {
      if (n % kJudged == 0) {
        ASSERT_NO_FATAL_FAILURE(replayed[plan].judge(lengths, table));
      }
      const auto output = [&](const Step& step) {
        return step.take_output(first, sampled ? 1 : kBatch, stream.get());
      };
      ASSERT_TRUE(output(replayed[plan]) == output(eager[plan]))
          << "step " << n << ", plan " << plan;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllKernels, DecodeReplay,
    testing::Values(Subject{"decode_sm80", DType::bf16, DType::bf16, 128, 1, 16, false},
                    Subject{"decode_sm80", DType::f16, DType::f8e4m3, 64, 1, 1, true},
                    Subject{"decode_sm90", DType::bf16, DType::bf16, 128, 1, 16, false},
                    Subject{"decode_sm90", DType::bf16, DType::f8e4m3, 128, 1, 64, true},
                    Subject{"mla_sm90", DType::bf16, DType::bf16, 576, 1, 64, false},
                    Subject{"mla_sm90", DType::f16, DType::f16, 576, 9, 16, false},
                    Subject{"mla_sm90", DType::bf16, DType::bf16, 576, 1, 64, true}));

constexpr Subject kSubjects[] = {
    {"decode_sm80", DType::bf16, DType::bf16, 128, 1, 16, false},
    {"decode_sm80", DType::f16, DType::f16, 64, 3, 1, true},
    {"decode_sm80", DType::bf16, DType::f8e4m3, 128, 1, 64, true},
    {"decode_sm80", DType::f16, DType::f8e5m2, 80, 9, 7, false},
    {"decode_sm80", DType::bf16, DType::bf16, 96, 2, 32, true},
    {"decode_sm80", DType::bf16, DType::bf16, 256, 1, 16, false},
    {"decode_sm80", DType::f16, DType::f8e4m3, 192, 6, 5, true},
    {"decode_sm80", DType::bf16, DType::bf16, 128, 40, 16, true, true},
    {"decode_sm80", DType::f16, DType::f8e4m3, 64, 15, 7, false, true},
    {"decode_sm80", DType::f16, DType::f16, 256, 9, 16, false, true},
    {"decode_sm80", DType::bf16, DType::bf16, 128, 1, 16, false, false, true},
    {"decode_sm80", DType::f16, DType::f8e4m3, 64, 5, 7, true, true, true},
    {"decode_sm80", DType::f16, DType::f16, 192, 3, 1, true, false, true},
    {"decode_sm90", DType::bf16, DType::bf16, 128, 1, 16, false},
    {"decode_sm90", DType::f16, DType::f16, 64, 3, 1, true},
    {"decode_sm90", DType::bf16, DType::f8e4m3, 128, 1, 64, true},
    {"decode_sm90", DType::f16, DType::f8e5m2, 80, 9, 7, false},
    {"decode_sm90", DType::bf16, DType::bf16, 96, 5, 32, true},
    {"decode_sm90", DType::bf16, DType::f8e4m3, 64, 6, 32, false},
    {"decode_sm90", DType::bf16, DType::bf16, 128, 40, 16, false, true},
    {"decode_sm90", DType::f16, DType::f16, 64, 15, 7, true, true},
    {"mla_sm90", DType::bf16, DType::bf16, 576, 1, 64, false},
    {"mla_sm90", DType::f16, DType::f16, 576, 5, 8, true},
    {"mla_sm90", DType::bf16, DType::bf16, 576, 40, 16, false, true},
    {"forward_sm90_throughput:paged", DType::bf16, DType::bf16, 128, 200, 16, true},
    {"forward_sm90_throughput:paged", DType::f16, DType::f16, 64, 300, 64, true},
    {"forward_sm90_throughput:paged", DType::bf16, DType::bf16, 96, 130, 24, false},
    {"forward_sm90_throughput:paged", DType::f16, DType::f16, 192, 200, 128, false},
    {"forward_sm90_throughput:paged", DType::bf16, DType::bf16, 256, 150, 8, true},
    {"forward_sm80_throughput:paged", DType::bf16, DType::bf16, 128, 200, 16, true},
    {"forward_sm80_throughput:paged", DType::f16, DType::f16, 64, 300, 64, true},
    {"forward_sm80_throughput:paged", DType::bf16, DType::bf16, 96, 130, 1, false},
    {"forward_sm80_throughput:paged", DType::f16, DType::f16, 192, 200, 128, false},
    {"forward_sm80_throughput:paged", DType::bf16, DType::bf16, 256, 150, 7, true}};
INSTANTIATE_TEST_SUITE_P(AllKernels, DecodeDevice, testing::ValuesIn(kSubjects));

// The first seed's lengths are 1, to be captured in a graph that serves all others.
std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const Subject& s : kSubjects) {
    const auto make = [s](int64_t, uint64_t seed) {
      const int64_t most = s.capacity();
      const std::vector<int64_t> lengths[] = {{1, 1, 1}, {most, most, most}, {0, 5, 500},
                                              {2, 0, 0}, {0, 0, 0},          {most, 0, 300}};
      return make_problem(s, lengths[seed % 6], seed);
    };
    all.push_back({.name = testing::PrintToString(s),
                   .options = options_of(s),
                   .make = make,
                   .starts_early = true});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Decode, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore
