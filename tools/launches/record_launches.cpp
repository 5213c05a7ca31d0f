// Plans and runs every CUDA kernel of the table for each GPU family and on each of two GPUs,
// against the recording runtime, and prints what was launched: one line a kernel and family,
//
//   sm_90 12_mma_sync 256 98304 _ZN9flashcore...      (threads, most dynamic shared bytes, kernel)
//
// tools/check_resources.py adds the static shared memory and judges the sum.
//
//   record_launches --arguments FILE
//
// also prints the launches of the standard cases (standard_cases.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/cases.hpp"
#include "bench/fp8_problem.hpp"
#include "dispatch/kernels.hpp"
#include "fake_runtime.hpp"
#include "problem/status.hpp"
#include "standard_cases.hpp"

namespace flashcore {
namespace {

std::vector<std::pair<fake::Gpu, int>> gpus_and_devices() {
  std::vector<std::pair<fake::Gpu, int>> all;
  for (const fake::Gpu& gpu : fake::kGpus) {
    for (const int device : {0, 1}) all.emplace_back(gpu, device);
  }
  return all;
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  const std::tuple<int64_t, int64_t, int64_t> shapes[] = {
      {1, 8, 100}, {1, 8, 128}, {1, 8, 200}, {1, 4, 300},  {1, 4, 512},  {1, 8, 512},
      {8, 8, 200}, {8, 8, 256}, {8, 8, 300}, {2, 8, 2048}, {4, 32, 4096}};
  for (const auto& [batch, heads, seqlen] : shapes) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const bool causal : {false, true}) {
        for (const DType dtype : {DType::f16, DType::bf16, DType::f8e4m3}) {
          bench::Case one{.name = "", .dtype = dtype, .batch = batch};
          one.heads_q = one.heads_kv = heads;
          one.seqlen_q = one.seqlen_kv = seqlen;
          one.head_dim = head_dim;
          one.causal = causal;
          const Problem problem = bench::to_problem(one);
          all.push_back(dtype == DType::f8e4m3 ? bench::with_fp8_inputs(problem) : problem);
        }
      }
    }
  }
  // Every compiled kernel of forward_sm80: its other head dimensions, and features.
  for (const auto& [head_dim_qk, head_dim_v] :
       {std::pair<int64_t, int64_t>{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      for (const float softcap : {0.0F, 20.0F}) {
        Problem problem;
        problem.q = problem.k = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim_qk});
        problem.v = problem.o = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim_v});
        problem.softcap = softcap;
        all.push_back(problem);
      }
    }
  }
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {  // without keys
    for (const int64_t head_dim : {64, 128, 256}) {
      Problem problem;
      problem.q = problem.o = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim});
      problem.k = problem.v = TensorDesc::contiguous(dtype, {1, 8, 0, head_dim});
      all.push_back(problem);
    }
  }
  return all;
}

// Pointers that nothing follows, `offset` bytes from a multiple of 256.
Arguments arguments(size_t offset = 0) {
  alignas(256) static std::byte memory[256];
  Arguments args;
  args.q = args.k = args.v = memory + offset;
  args.o = args.lse = memory + offset;
  args.q_scale = args.k_scale = args.v_scale = reinterpret_cast<const float*>(memory);
  return args;
}

// Likewise: as long as it is asked to be, and gigabytes of it are never touched.
std::span<std::byte> workspace(size_t bytes) {
  alignas(256) static std::byte memory[256];
  return {memory, bytes};
}

// Tensors that no wide copy reaches: they are refused, or another kernel is launched for them.
Status run_unaligned(const PlannedKernel& planned) {
  const Status status = planned.run(arguments(8), workspace(planned.workspace_bytes), Stream{});
  const bool launched = !fake::take_launches().empty();
  if (status.code() == StatusCode::invalid_argument && !launched) return {};
  if (status.ok() && !launched) return {StatusCode::device_error, "unaligned: nothing is launched"};
  return status;
}

struct Seen {
  int64_t threads = 0;
  int64_t dynamic_shared = 0;
};
using AllSeen = std::map<std::tuple<int, std::string, std::string>, Seen>;

// Whatever GPU is current, a plan launches on its own, and leaves the other current; kernels get no
// tensor map that nothing wrote.
Status expect_sound(int device, const std::vector<fake::Launch>& launches) {
  for (const fake::Launch& launch : launches) {
    if (launch.device != device) {
      return {StatusCode::device_error,
              fmt::format("a plan for GPU {} launched on GPU {}", device, launch.device)};
    }
    if (launch.unwritten_maps > 0) {
      return {StatusCode::device_error,
              fmt::format("{} was given {} tensor maps that nothing wrote", launch.kernel,
                          launch.unwritten_maps)};
    }
  }
  if (fake::current_device() == 0) return {};
  return {StatusCode::device_error,
          fmt::format("GPU {} is current after a run, wanted 0", fake::current_device())};
}

Status record_run(const Kernel& kernel, const ForwardProblem& p, const PlanContext& context,
                  AllSeen& seen) {
  const Result<PlannedKernel> planned = kernel.plan(p, context);
  if (!planned.ok()) return planned.status();
  (void)fake::take_launches();  // those of planning are not the kernel's
  FLASHCORE_RETURN_IF_ERROR(
      planned->run(arguments(), workspace(planned->workspace_bytes), Stream{}));
  const std::vector<fake::Launch> launches = fake::take_launches();
  FLASHCORE_RETURN_IF_ERROR(expect_sound(context.device.device.index, launches));
  for (const fake::Launch& launch : launches) {
    Seen& most = seen[{context.device.compute_capability, kernel.name, launch.kernel}];
    most.threads = std::max(most.threads, launch.threads);
    most.dynamic_shared = std::max(most.dynamic_shared, launch.dynamic_shared);
  }
  return run_unaligned(*planned);
}

int record() {
  AllSeen seen;
  for (const auto& [gpu, device] : gpus_and_devices()) {
    fake::use(gpu);
    PlanContext context;
    context.device.device = {DeviceKind::cuda, device};
    context.device.compute_capability = gpu.compute_capability;
    context.device.multiprocessors = gpu.multiprocessors;
    context.device.shared_memory_a_block = gpu.shared_memory_a_block;
    for (const Kernel& kernel : kernels()) {
      if (kernel.device != DeviceKind::cuda) continue;
      for (const Problem& problem : problems()) {
        const Result<ForwardProblem> p = resolve(problem);
        if (!p.ok() || !kernel.refuses(*p, context).empty()) continue;
        if (const Status status = record_run(kernel, *p, context, seen); !status.ok()) {
          fmt::print(stderr, "record_launches: {}: {}\n", kernel.name, status.message());
          return 1;
        }
      }
    }
  }
  for (const auto& [key, most] : seen) {
    const auto& [capability, variant, kernel] = key;
    fmt::print("sm_{} {} {} {} {}\n", capability, variant, most.threads, most.dynamic_shared,
               kernel);
  }
  return seen.empty() ? 1 : 0;
}

}  // namespace
}  // namespace flashcore

int main(int count, char** words) {
  const std::span<char*> all(words, static_cast<size_t>(count));
  const int failed = flashcore::record();
  if (failed != 0 || count != 3 || std::string_view(all[1]) != "--arguments") return failed;
  return flashcore::record_standard_cases(all[2]);
}
