// What forward_fp8_sm89 promises besides the right numbers on tensors at good addresses, on a GPU:
// tensors at any address, bits that repeat and do not depend on the batch.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/gpu.hpp"

namespace flashcore {
namespace {

const Device kGpu = first_gpu();

class ForwardFp8Sm89Device : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    for (const DeviceInfo& info : devices()) {
      const bool here = info.device.kind == kGpu.kind && info.device.index == kGpu.index;
      if (here && (info.compute_capability == 89 || info.compute_capability == 90)) return;
    }
    GTEST_SKIP() << "no GPU of compute capability 8.9 or 9.0";
  }
};
INSTANTIATE_TEST_SUITE_P(HeadDims, ForwardFp8Sm89Device, testing::Values(64, 96, 256));

Problem problem_of(int64_t head_dim, int64_t batch) {
  Problem p;
  p.q = TensorDesc::contiguous(DType::f8e4m3, {batch, 4, 150, head_dim});
  p.k = p.v = TensorDesc::contiguous(DType::f8e4m3, {batch, 2, 333, head_dim});
  p.o = TensorDesc::contiguous(DType::f32, {batch, 4, 150, head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {batch, 4, 150});
  p.sinks = TensorDesc::contiguous(DType::f32, {4});
  p.causal = true;
  p.softcap = 20;
  return p;
}

// Runs once on tensors that begin `elements` elements past a multiple of 256 bytes; the outputs are in
// `host` afterwards.
void run_at(bench::HostProblem& host, size_t elements) {
  PlanOptions options;
  options.device = kGpu;
  options.kernel = "forward_fp8_sm89";
  const Result<Plan> plan = make_plan(host.problem, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->workspace_bytes(), 0U);
  bench::poison_outputs(host);
  std::map<std::string, std::byte*, std::less<>> copies;
  for (const auto& [name, tensor] : host.tensors) {
    const size_t shift = elements * size_of(tensor.desc().dtype);
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, tensor.memory().size() + shift), cudaSuccess);
    copies[name] = static_cast<std::byte*>(memory) + shift;
    ASSERT_EQ(cudaMemcpy(copies[name], tensor.memory().data(), tensor.memory().size(),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  const Arguments args = bench::bind(host.problem, [&](std::string_view name) -> void* {
    return copies.find(name)->second + host.at(name).origin();
  });
  const Status status = plan->run(args, nullptr, 0);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) {
      EXPECT_EQ(cudaMemcpy(tensor.memory().data(), copies[name], tensor.memory().size(),
                           cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
    EXPECT_EQ(cudaFree(copies[name] - elements * size_of(tensor.desc().dtype)), cudaSuccess);
  }
}

TEST_P(ForwardFp8Sm89Device, PassesItsGateAtAnyAddress) {
  bench::HostProblem host = bench::make_host_problem(problem_of(GetParam(), 1), 3);
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  for (const size_t elements : {0, 1, 5}) {
    run_at(host, elements);
    const bench::Verdict verdict = bench::judge(host, *reference);
    EXPECT_TRUE(verdict.passed) << elements << ": " << verdict.failure;
  }
}

TEST_P(ForwardFp8Sm89Device, ARowAloneHasTheBitsThatItHasInABatch) {
  constexpr int64_t kBatch = 3;
  bench::HostProblem all = bench::make_host_problem(problem_of(GetParam(), kBatch), 5);
  run_at(all, 0);
  bench::HostProblem again = bench::make_host_problem(problem_of(GetParam(), kBatch), 5);
  run_at(again, 0);
  bench::HostProblem one = bench::make_host_problem(problem_of(GetParam(), 1), 6);
  one.at("sinks") = all.at("sinks");
  for (int64_t b = 0; b < kBatch; ++b) {
    for (const char* const name : {"q", "k", "v"}) {
      bench::HostTensor& to = one.at(name);
      for (int64_t i = 0; i < to.elements(); ++i) {
        to.set(i, all.at(name).get(b * to.elements() + i));
      }
    }
    run_at(one, 0);
    for (const char* const name : {"o", "lse"}) {
      const bench::HostTensor& alone = one.at(name);
      for (int64_t i = 0; i < alone.elements(); ++i) {
        const int64_t at = b * alone.elements() + i;
        ASSERT_EQ(alone.get(i), all.at(name).get(at)) << name << " " << b << " " << i;
        ASSERT_EQ(again.at(name).get(at), all.at(name).get(at)) << name << " " << b << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace flashcore
