// Elements past 2^31, in every tensor and along every dimension: each tensor gets its own address
// range in which only the pages of its elements exist.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "plan/table.hpp"
#include "problem/dtype.hpp"

namespace flashcore {
namespace {

constexpr int64_t kFar = (int64_t{1} << 31) + 64;  // in elements; a multiple of 64, for vectors

// Address space for `bytes` on both sides of an origin; memory is allocated on write.
class Region {
 public:
  explicit Region(int64_t bytes) : bytes_(static_cast<size_t>(2 * bytes)) {
    address_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  Region(Region&& other) noexcept
      : address_(std::exchange(other.address_, MAP_FAILED)), bytes_(other.bytes_) {}
  ~Region() {
    if (ok()) munmap(address_, bytes_);
  }
  bool ok() const { return address_ != MAP_FAILED; }
  void* origin() const { return static_cast<std::byte*>(address_) + bytes_ / 2; }

 private:
  void* address_;
  size_t bytes_;
};

int64_t offset_of(const TensorDesc& desc, int64_t element) {
  int64_t offset = 0;
  for (size_t d = static_cast<size_t>(desc.rank); d-- > 0;) {
    offset += element % desc.shape[d] * desc.stride[d];
    element /= desc.shape[d];
  }
  return offset;
}

// B 2, Hq 4, Hkv 2, Sq 3, Skv 70: more than one block of keys.
Problem small_problem(DType dtype) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {2, 4, 3, 16});
  problem.k = TensorDesc::contiguous(dtype, {2, 2, 70, 16});
  problem.v = TensorDesc::contiguous(dtype, {2, 2, 70, 16});
  problem.o = TensorDesc::contiguous(dtype, {2, 4, 3, 16});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 3});
  problem.bias = TensorDesc::contiguous(DType::f32, {2, 4, 3, 70});
  problem.mask = TensorDesc::contiguous(DType::boolean, {2, 4, 3, 70});
  return problem;
}

// Dimension `far` of every tensor that has it gets a stride of more than 2^31 elements.
Problem far_problem(const Problem& near, size_t far, int64_t step) {
  Problem problem = near;
  for (TensorDesc* desc : {&problem.q, &problem.k, &problem.v, &problem.o, &*problem.lse,
                           &*problem.bias, &*problem.mask}) {
    const bool last_is_contiguous =
        desc == &problem.q || desc == &problem.k || desc == &problem.v || desc == &problem.o;
    if (far + (last_is_contiguous ? 1 : 0) < static_cast<size_t>(desc->rank)) {
      desc->stride[far] = step;
    }
  }
  return problem;
}

void compare(const std::string& kernel, DType dtype, size_t far, int64_t step) {
  const Problem near = small_problem(dtype);
  bench::HostProblem host = bench::make_host_problem(near, 1);
  PlanOptions options;
  options.kernel = kernel;
  options.threads = 2;
  const Result<Plan> near_plan = make_plan(near, options);
  const Problem problem = far_problem(near, far, step);
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok() && plan.status().code() == StatusCode::unsupported) return;
  ASSERT_TRUE(near_plan.ok() && plan.ok()) << plan.status().message();
  const size_t workspace_bytes = std::max(near_plan->workspace_bytes(), plan->workspace_bytes());
  bench::HostTensor workspace(
      TensorDesc::contiguous(DType::f8e5m2, {static_cast<int64_t>(workspace_bytes)}));
  Status status = near_plan->run(host.arguments(), workspace.data(), workspace_bytes);
  ASSERT_TRUE(status.ok()) << status.message();

  std::map<std::string, Region, std::less<>> regions;
  std::map<std::string, TensorDesc, std::less<>> descs;
  bool enough = true;
  bench::for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    int64_t reach = 4096;
    for (size_t d = 0; d < static_cast<size_t>(desc.rank); ++d) {
      reach += std::abs(desc.stride[d]) * desc.shape[d];
    }
    Region region(reach * static_cast<int64_t>(size_of(desc.dtype)));
    enough = enough && region.ok();
    regions.emplace(name, std::move(region));
    descs.emplace(name, desc);
  });
  if (!enough) GTEST_SKIP() << "no address space for sparse tensors here";
  for (const auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) continue;
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      store_element(tensor.desc().dtype, regions.find(name)->second.origin(),
                    offset_of(descs[name], i), tensor.get(i));
    }
  }
  const Arguments args = bench::bind(
      problem, [&](std::string_view name) { return regions.find(name)->second.origin(); });
  status = plan->run(args, workspace.data(), workspace_bytes);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const char* const name : {"o", "lse"}) {
    const bench::HostTensor& want = host.at(name);
    for (int64_t i = 0; i < want.elements(); ++i) {
      ASSERT_EQ(load_element(want.desc().dtype, regions.find(name)->second.origin(),
                             offset_of(descs[name], i)),
                want.get(i))
          << name << ' ' << i;
    }
  }
}

TEST(FarOffsets, EveryCpuKernelAndDimension) {
  for (const Variant& kernel : variants()) {
    if (kernel.device != DeviceKind::cpu) continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (size_t far = 0; far < 4; ++far) {
        for (const int64_t step : {kFar, -kFar}) {
          SCOPED_TRACE(::testing::Message() << kernel.name << ' ' << to_string(dtype)
                                            << " dimension " << far << " step " << step);
          ASSERT_NO_FATAL_FAILURE(compare(kernel.name, dtype, far, step));
        }
      }
    }
  }
}

}  // namespace
}  // namespace flashcore
