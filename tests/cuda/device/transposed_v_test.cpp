// The kernels that take a V stored transposed, on a GPU: forward_fp8_sm90 without a workspace, both at any
// address, with NaN in hidden columns, and one plan over one V after another.
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>

#include "bench/gate/gates.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "problem/transposed.hpp"
#include "tests/cuda/device/device_tensors.hpp"

namespace flashcore {
namespace {

constexpr int64_t kQueries = 70, kKeys = 333, kUsed = 300;

// Finds a GPU of compute capability 9.0.
bool find_hopper(Device& found) {
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind == DeviceKind::cpu || info.compute_capability != 90) continue;
    found = info.device;
    return true;
  }
  return false;
}

bench::HostProblem made(int64_t head_dim, uint64_t seed, bool hidden_nan) {
  Problem p;
  p.q = TensorDesc::contiguous(DType::f8e4m3, {1, 2, kQueries, head_dim});
  p.k = TensorDesc::contiguous(DType::f8e4m3, {1, 1, kKeys, head_dim});
  p.v = TensorDesc::contiguous(DType::f8e4m3, {1, 1, head_dim, 384});
  p.o = TensorDesc::contiguous(DType::f32, {1, 2, kQueries, head_dim});
  p.lse = TensorDesc::contiguous(DType::f32, {1, 2, kQueries});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {1});
  p.softmax_scale = 0.05F;
  p.v_transposed = true;
  bench::HostProblem host = bench::make_host_problem(p, seed);
  host.at("seqlens_kv").set(0, kUsed);
  for (int64_t d = 0; hidden_nan && d < head_dim; ++d) {
    for (int64_t key = kUsed; key < 384; ++key) {
      host.at("v").set(d * 384 + column_of_key(key), std::numeric_limits<double>::quiet_NaN());
    }
  }
  return host;
}

// On tensors that begin `shift` bytes past a multiple of 256, all but O and LSE, which are of 4 bytes.
void expect_its_gates(const PlanOptions& options, int64_t head_dim, bool has_workspace) {
  const Result<Plan> plan = make_plan(made(head_dim, 0, false).problem, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->workspace_bytes() > 0, has_workspace);
  uint64_t seed = 1;
  for (const size_t shift : {0, 1, 0}) {
    for (const bool hidden_nan : {false, true}) {
      bench::HostProblem host = made(head_dim, seed++, hidden_nan);
      const Result<bench::Reference> reference = bench::compute_reference(host);
      ASSERT_TRUE(reference.ok()) << reference.status().message();
      DeviceTensors tensors(host, [&](const bench::HostTensor& tensor) {
        return size_of(tensor.desc().dtype) == 1 ? shift : 0;
      });
      ASSERT_NO_FATAL_FAILURE(run_on(tensors, *plan, host));
      const bench::Verdict verdict = bench::judge(host, *reference);
      EXPECT_TRUE(verdict.passed) << options.kernel << ", " << head_dim << " at " << shift
                                  << (hidden_nan ? ", NaN: " : ": ") << verdict.failure;
    }
  }
}

TEST(TransposedVOnGpu, PassesItsGateAtAnyAddress) {
  PlanOptions options;
  if (!find_hopper(options.device)) GTEST_SKIP() << "no GPU of compute capability 9.0";
  for (const char* const kernel : {"forward_fp8_sm90", "forward_converted:v_rows"}) {
    options.kernel = kernel;
    for (const int64_t head_dim : {64, 128}) {
      ASSERT_NO_FATAL_FAILURE(
          expect_its_gates(options, head_dim, options.kernel == "forward_converted:v_rows"));
    }
  }
}

// Taken by one kernel, in either mode, and by the one that makes rows of it; refused by the others in the
// same words.
TEST(TransposedVOnGpu, IsRefusedByTheOthersInTheSameWords) {
  PlanOptions options;
  if (!find_hopper(options.device)) GTEST_SKIP() << "no GPU of compute capability 9.0";
  const Problem transposed = made(64, 0, false).problem;
  Problem in_rows = transposed;
  in_rows.v_transposed = false;
  in_rows.v = in_rows.k;
  const auto verdicts = explain(transposed, options), others = explain(in_rows, options);
  ASSERT_TRUE(verdicts.ok());
  ASSERT_TRUE(others.ok());
  ASSERT_EQ(verdicts->size(), others->size());
  int refused_for_v = 0;
  for (size_t i = 0; i < verdicts->size(); ++i) {
    const KernelVerdict& one = (*verdicts)[i];
    ASSERT_EQ(one.kernel, (*others)[i].kernel);
    const bool takes_it = one.kernel == "forward_fp8_sm90" ||
                          one.kernel == "forward_fp8_sm90:precise" ||
                          one.kernel == "forward_converted:v_rows";
    EXPECT_EQ(one.refusal.empty(), takes_it) << one.kernel << ": " << one.refusal;
    if (takes_it || !(*others)[i].refusal.empty()) continue;  // refused for another reason
    EXPECT_TRUE(one.refusal.starts_with("v_transposed: ")) << one.kernel << ": " << one.refusal;
    ++refused_for_v;
  }
  EXPECT_GT(refused_for_v, 0);
}

}  // namespace
}  // namespace flashcore
