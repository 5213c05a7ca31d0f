// forward_converted:fp8 on a GPU: its two or three launches in a stream and in a graph, and what its
// workspace held before.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/cases/fp8_problem.hpp"
#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/gpu.hpp"
#include "tests/cuda/device/own_stream.hpp"

namespace flashcore {
namespace {

const Device kGpu = first_gpu();

// What comes between the conversions, and after them.
struct Subject {
  std::string name;
  DType o_dtype = DType::bf16;
  bool has_lse = false, has_largest = false, early = false;
  int64_t seqlen = 300;
  DType k_dtype = DType::f8e4m3, v_dtype = DType::f8e4m3;
};

Problem problem_of(const Subject& s) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {2, 4, s.seqlen, 64});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {2, 2, s.seqlen, 64});
  p = bench::with_fp8_inputs(p);
  p.k.dtype = s.k_dtype, p.v.dtype = s.v_dtype;
  p.o.dtype = s.o_dtype;
  if (s.has_lse) p.lse = TensorDesc::contiguous(DType::f32, {2, 4, s.seqlen});
  if (s.has_largest) p.amax_o = TensorDesc::contiguous(DType::f32, {2, 4});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  return p;
}

void set_lengths(bench::HostProblem& host, int64_t first, int64_t second) {
  host.at("seqlens_kv").set(0, static_cast<double>(first));
  host.at("seqlens_kv").set(1, static_cast<double>(second));
}

bench::HostProblem made(const Subject& s) {
  bench::HostProblem host = bench::allocate(problem_of(s));
  bench::fill_fp8_inputs(host, 3);
  set_lengths(host, s.seqlen, 100);
  return host;
}

Plan plan_of(const Subject& s, const Problem& problem) {
  PlanOptions options;
  options.device = kGpu;
  options.kernel = "forward_converted:fp8";
  options.early_start = s.early;
  const Result<Plan> plan = make_plan(problem, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *plan;
}

class ForwardFp8Converted : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    for (const DeviceInfo& device : devices()) {
      const bool same = device.device.kind == kGpu.kind && device.device.index == kGpu.index;
      if (same && device.compute_capability >= 80) return;
    }
    GTEST_SKIP() << "there is no GPU that runs forward_converted:fp8";
  }
};

INSTANTIATE_TEST_SUITE_P(All, ForwardFp8Converted,
                         testing::Values(Subject{"bf16"},
                                         Subject{"early", DType::bf16, false, false, true},
                                         Subject{"f16_lse", DType::f16, true},
                                         Subject{"e4m3_largest", DType::f8e4m3, true, true},
                                         Subject{"long", DType::f32, false, true, false, 1500},
                                         Subject{"mixed", DType::f16, true, false, false, 300,
                                                 DType::f8e4m3, DType::f8e5m2},
                                         Subject{"mixed_keys", DType::bf16, false, true, false, 300,
                                                 DType::f8e5m2, DType::f8e4m3}),
                         [](const auto& one) { return one.param.name; });

void run_once(const Plan& plan, bench::HostProblem& host, int fill) {
  bench::poison_outputs(host);
  const DeviceTensors tensors(host);
  const Workspace workspace(plan.workspace_bytes(), fill);
  const OwnStream stream;
  const Status status =
      plan.run(tensors.arguments(host), workspace.data(), workspace.bytes(), Stream{stream.get()});
  ASSERT_TRUE(status.ok()) << status.message();
  tensors.download_outputs(host);
}

TEST_P(ForwardFp8Converted, PassesTheGatesWhateverTheWorkspaceHeld) {
  bench::HostProblem host = made(GetParam());
  const Plan plan = plan_of(GetParam(), host.problem);
  const Result<bench::Reference> reference = bench::compute_reference(host);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  Outputs first;
  for (const int fill : {0x00, 0xFF, 0x7F}) {
    run_once(plan, host, fill);
    EXPECT_EQ(bench::judge(host, *reference).failure, "") << "workspace of bytes " << fill;
    if (first.empty()) first = outputs_of(host);
    EXPECT_TRUE(outputs_of(host) == first) << "workspace of bytes " << fill;
  }
}

// Capture in the global mode fails on any allocation or synchronisation.
TEST_P(ForwardFp8Converted, AGraphServesEveryLength) {
  bench::HostProblem host = made(GetParam());
  const Plan plan = plan_of(GetParam(), host.problem);
  bench::poison_outputs(host);
  DeviceTensors tensors(host);
  const Workspace workspace(plan.workspace_bytes(), 0xFF);
  const OwnStream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  const Status status =
      plan.run(tensors.arguments(host), workspace.data(), workspace.bytes(), Stream{stream.get()});
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const int64_t length : {int64_t{0}, int64_t{1}, int64_t{257}, GetParam().seqlen}) {
    set_lengths(host, length, 3);
    run_once(plan, host, 0);
    const Outputs wanted = outputs_of(host);
    bench::poison_outputs(host);
    tensors.upload(host);
    ASSERT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
    tensors.download_outputs(host);
    EXPECT_TRUE(outputs_of(host) == wanted) << "length " << length;
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace flashcore
