// forward_fp8_sm89 on a GPU: tensors at any address.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

constexpr const char* kKernel = "forward_fp8_sm89";
constexpr int64_t kHeadDims[] = {64, 96, 256};

class ForwardFp8Sm89Device : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (!runs_here(kKernel)) GTEST_SKIP() << "no GPU that " << kKernel << " runs on";
  }
};
INSTANTIATE_TEST_SUITE_P(HeadDims, ForwardFp8Sm89Device, testing::ValuesIn(kHeadDims));

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

TEST_P(ForwardFp8Sm89Device, PassesItsGateAtAnyAddress) {
  bench::HostProblem host = bench::make_host_problem(problem_of(GetParam(), 1), 3);
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  const Plan plan = plan_of(host, on_gpu(kKernel));
  ASSERT_EQ(plan.workspace_bytes(), 0U);
  for (const size_t elements : {0, 1, 5}) {
    DeviceTensors tensors(host, [&](const bench::HostTensor& tensor) {
      return elements * size_of(tensor.desc().dtype);
    });
    ASSERT_NO_FATAL_FAILURE(run_on(tensors, plan, host));
    EXPECT_EQ(bench::judge(host, *reference).failure, "") << elements;
  }
}

std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const int64_t head_dim : kHeadDims) {
    const auto make = [head_dim](int64_t batch, uint64_t seed) {
      return bench::make_host_problem(problem_of(head_dim, batch), seed);
    };
    all.push_back({std::to_string(head_dim), on_gpu(kKernel), make, true});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(ForwardFp8Sm89, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore
