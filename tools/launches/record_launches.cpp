// Plans and runs every variant of the CUDA kernels of the table, with each config, and each call, for each GPU family and on each of
// two GPUs, against the recording runtime, and prints what was launched: of each function the most,
//
//   sm_90 12_mma_sync 256 98304 _ZN9flashcore...      (threads, dynamic shared bytes, function)
//
// so that tools/check_resources.py adds the static shared memory and judges the sum, and of each case
// its functions, those that launch the same as one:
//
//   case sm_90 12_mma_sync _ZN9flashcore...
//
//   record_launches --arguments FILE
//
// also prints the launches of the standard cases (standard_cases.hpp).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/fp8_problem.hpp"
#include "call_cases.hpp"
#include "cuda/launch/launch.hpp"
#include "fake_runtime.hpp"
#include "plan/table.hpp"
#include "problem/status.hpp"
#include "standard_cases.hpp"

namespace flashcore {
namespace {

// Besides one of each family: a GPU that runs another's code, and two that run PTX.
constexpr fake::Gpu kOthers[] = {
    {86, 84, 99 * 1024}, {100, 148, 227 * 1024}, {120, 188, 99 * 1024}};

std::vector<std::pair<fake::Gpu, int>> gpus_and_devices() {
  std::vector<std::pair<fake::Gpu, int>> all;
  for (const std::span<const fake::Gpu> some : {std::span(fake::kGpus), std::span(kOthers)}) {
    for (const fake::Gpu& gpu : some) {
      for (const int device : {0, 1}) all.emplace_back(gpu, device);
    }
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
  // Every compiled kernel of forward_sm80_throughput: its other head dimensions, and features.
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
      Problem problem;
      problem.q = problem.k = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim_qk});
      problem.v = problem.o = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim_v});
      problem.dropout_p = 0.1F;
      problem.dropout_state = TensorDesc::contiguous(DType::i64, {2});
      all.push_back(problem);
    }
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {  // fp8 caches
    for (const int64_t head_dim : {64, 128, 256}) {
      Problem problem;
      problem.q = problem.o = TensorDesc::contiguous(dtype, {4, 8, 1, head_dim});
      problem.k = problem.v = TensorDesc::contiguous(DType::f8e4m3, {4, 2, 4096, head_dim});
      all.push_back(problem);
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
  for (const DType dtype : {DType::f16, DType::bf16}) {
    // Pages under many queries.
    for (const auto& [head_dim_qk, head_dim_v] :
         {std::pair<int64_t, int64_t>{64, 64}, {128, 128}, {192, 128}, {256, 256}}) {
      for (const float softcap : {0.0F, 20.0F}) {
        Problem problem;
        problem.q = TensorDesc::contiguous(dtype, {4, 8, 512, head_dim_qk});
        problem.o = TensorDesc::contiguous(dtype, {4, 8, 512, head_dim_v});
        problem.k = TensorDesc::contiguous(dtype, {64, 2, 64, head_dim_qk});
        problem.v = TensorDesc::contiguous(dtype, {64, 2, 64, head_dim_v});
        problem.page_table = TensorDesc::contiguous(DType::i32, {4, 16});
        problem.softcap = softcap;
        all.push_back(problem);
      }
    }
  }
  Problem transposed;  // a V that no kernel reads so
  transposed.q = transposed.k = TensorDesc::contiguous(DType::f8e5m2, {1, 8, 512, 64});
  transposed.v = TensorDesc::contiguous(DType::f8e5m2, {1, 8, 64, 512});
  transposed.o = TensorDesc::contiguous(DType::bf16, {1, 8, 512, 64});
  transposed.v_transposed = true;
  all.push_back(transposed);
  Problem stored;  // in fp8, with the largest values
  stored.q = stored.k = stored.v = stored.o =
      TensorDesc::contiguous(DType::f8e4m3, {1, 8, 512, 64});
  stored.amax_o = TensorDesc::contiguous(DType::f32, {1, 8});
  all.push_back(stored);
  for (const DType dtype : {DType::f16, DType::bf16}) {  // caches, for 4 and for 16 rows
    for (const DType cache : {dtype, DType::f8e4m3, DType::f8e5m2}) {
      for (const int64_t head_dim : {64, 128, 256}) {
        for (const int64_t seqlen_q : {1, 4}) {
          Problem problem;
          problem.q = problem.o = TensorDesc::contiguous(dtype, {4, 8, seqlen_q, head_dim});
          problem.k = problem.v = TensorDesc::contiguous(cache, {4, 2, 4096, head_dim});
          all.push_back(problem);
          problem.tree_mask = TensorDesc::contiguous(DType::i32, {1, seqlen_q, 1});
          all.push_back(problem);
          problem.bias = TensorDesc::contiguous(DType::f32, {1, 8, seqlen_q, 4096});
          all.push_back(problem);
        }
      }
      Problem mla;
      mla.q = TensorDesc::contiguous(dtype, {4, 16, 1, 576});
      mla.o = TensorDesc::contiguous(dtype, {4, 16, 1, 512});
      mla.k = TensorDesc::contiguous(cache, {4, 1, 4096, 576});
      mla.v = mla.k;
      mla.v.shape[3] = 512;
      all.push_back(mla);
    }
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {  // pages of rows of 96
    Problem problem;
    problem.q = problem.o = TensorDesc::contiguous(dtype, {4, 8, 512, 96});
    problem.k = problem.v = TensorDesc::contiguous(dtype, {64, 2, 64, 96});
    problem.page_table = TensorDesc::contiguous(DType::i32, {4, 16});
    all.push_back(problem);
  }
  Problem converted;  // whose O is converted, too
  converted.q = converted.k = converted.v = TensorDesc::contiguous(DType::f8e4m3, {1, 8, 512, 64});
  converted.o = TensorDesc::contiguous(DType::f32, {1, 8, 512, 64});
  all.push_back(converted);
  return all;
}

struct BackwardCase {
  Problem problem;
  Gradients gradients;
};

// What a case has beyond the band: nothing, what changes scores, or gradients of it as well.
enum class Extra { none, softcap, gradients };

BackwardCase backward_case(DType dtype, int64_t head_dim, Extra extra, bool packed) {
  BackwardCase one;
  Problem& p = one.problem;
  if (packed) {
    p.q = p.k = p.v = p.o = TensorDesc::contiguous(dtype, {600, 8, head_dim});
    p.lse = TensorDesc::contiguous(DType::f32, {600, 8});
    p.cu_seqlens_q = p.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {3});
    p.max_seqlen_q = p.max_seqlen_kv = 512;
  } else {
    p.q = p.k = p.v = p.o = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim});
    p.lse = TensorDesc::contiguous(DType::f32, {1, 8, 512});
  }
  if (extra == Extra::softcap) p.softcap = 20;
  if (extra == Extra::gradients) {
    p.bias = one.gradients.d_bias = TensorDesc::contiguous(DType::f32, {1, 8, 512, 512});
    p.sinks = one.gradients.d_sinks = TensorDesc::contiguous(DType::f32, {8});
    p.alibi_slopes = one.gradients.d_alibi_slopes = TensorDesc::contiguous(DType::f32, {8});
  }
  one.gradients.d_o = p.o;
  one.gradients.dq = p.q;
  one.gradients.dk = p.k;
  one.gradients.dv = p.v;
  return one;
}

std::vector<BackwardCase> backward_cases() {
  std::vector<BackwardCase> all;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const Extra extra : {Extra::none, Extra::softcap, Extra::gradients}) {
        for (const bool packed : {false, true}) {
          all.push_back(backward_case(dtype, head_dim, extra, packed));
        }
      }
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
  args.dropout_state = reinterpret_cast<const int64_t*>(memory);
  return args;
}

BackwardArguments backward_arguments(size_t offset = 0) {
  BackwardArguments args;
  args.forward = arguments(offset);
  void* const any = args.forward.o;
  args.forward.bias = any;
  args.forward.sinks = args.forward.alibi_slopes = args.forward.q_scale;
  args.d_o = args.dq = args.dk = args.dv = any;
  args.d_bias = args.d_sinks = args.d_alibi_slopes = any;
  return args;
}

// Likewise: as long as it is asked to be, and gigabytes of it are never touched.
std::span<std::byte> workspace(size_t bytes) {
  alignas(256) static std::byte memory[256];
  return {memory, bytes};
}

struct Seen {
  int64_t threads = 0;
  int64_t dynamic_shared = 0;
};
// What was seen, by compute capability and kernel.
struct AllSeen {
  std::map<std::tuple<int, std::string, std::string>, Seen> most;  // of each function
  std::map<std::pair<int, std::string>, std::set<std::vector<std::string>>> cases;
};

// An error that the caller made and has not looked at yet.
constexpr int kCallersError = 719;

// Whatever GPU is current, a plan launches on its own, and leaves the other current; kernels get no
// tensor map that nothing wrote, and production's kernels are loaded when planning, since a run may
// be captured in a graph. The caller finds its own errors.
Status expect_sound(const Variant& kernel, int device, const std::vector<fake::Launch>& launches) {
  if (fake::last_error() != kCallersError) {
    return {StatusCode::device_error, fmt::format("the caller's error is {} after a run, wanted {}",
                                                  fake::last_error(), kCallersError)};
  }
  for (const fake::Launch& launch : launches) {
    if (launch.device != device) {
      return {StatusCode::device_error,
              fmt::format("a plan for GPU {} launched on GPU {}", device, launch.device)};
    }
    const bool is_production = kernel.name.starts_with("forward_") ||
                               kernel.name.starts_with("backward_") ||
                               kernel.name.starts_with("decode_");
    if (is_production && !launch.ahead) {
      return {StatusCode::device_error, fmt::format("{} is loaded by the run", launch.kernel)};
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

void keep(const std::string& kernel, const PlanContext& context,
          const std::vector<fake::Launch>& launches, AllSeen& seen) {
  std::vector<std::string> functions;
  for (const fake::Launch& launch : launches) {
    Seen& most = seen.most[{context.device.compute_capability, kernel, launch.kernel}];
    most.threads = std::max(most.threads, launch.threads);
    most.dynamic_shared = std::max(most.dynamic_shared, launch.dynamic_shared);
    functions.push_back(launch.kernel);
  }
  if (!functions.empty()) {
    seen.cases[{context.device.compute_capability, kernel}].insert(functions);
  }
}

// A run of a plan that was just made.
template <class Planned, class Args>
Status record_launches(const Variant& kernel, const Planned& planned, const Args& args,
                       const PlanContext& context, AllSeen& seen) {
  (void)fake::take_launches();  // launches of planning are not the kernel's
  fake::set_last_error(kCallersError);
  FLASHCORE_RETURN_IF_ERROR(planned.run(args, workspace(planned.workspace_bytes), Stream{}));
  const std::vector<fake::Launch> launches = fake::take_launches();
  FLASHCORE_RETURN_IF_ERROR(expect_sound(kernel, context.device.device.index, launches));
  keep(kernel.name, context, launches, seen);
  return {};
}

// Tensors that no wide copy reaches: they are refused, or another kernel is launched for them.
Status run_unaligned(const Variant& kernel, const PlannedKernel& planned,
                     const PlanContext& context, AllSeen& seen) {
  const Status status = planned.run(arguments(8), workspace(planned.workspace_bytes), Stream{});
  const std::vector<fake::Launch> launches = fake::take_launches();
  if (status.code() == StatusCode::invalid_argument && launches.empty()) return {};
  if (status.ok() && launches.empty())
    return {StatusCode::device_error, "unaligned: nothing is launched"};
  // Otherwise they are of the kernel that takes what is not aligned.
  if (!kernel.wants_alignment) keep(kernel.name, context, launches, seen);
  return status;
}

Status record_run(const Variant& kernel, const ForwardProblem& p, const PlanContext& context,
                  AllSeen& seen) {
  const Result<PlannedKernel> planned = kernel.plan(p, context);
  if (!planned.ok()) return planned.status();
  FLASHCORE_RETURN_IF_ERROR(record_launches(kernel, *planned, arguments(), context, seen));
  return run_unaligned(kernel, *planned, context, seen);
}

Status record_backward(const Variant& kernel, PlanContext context, AllSeen& seen) {
  for (const BackwardCase& one : backward_cases()) {
    const Result<BackwardProblem> problem = resolve(one.problem, one.gradients);
    if (!problem.ok()) return problem.status();
    if (!refusal_of(kernel, *problem, context).empty()) continue;
    for (const bool deterministic : {false, true}) {
      context.deterministic = deterministic;
      const Result<PlannedBackward> planned = kernel.backward.plan(*problem, context);
      if (!planned.ok()) return planned.status();
      AllSeen others;  // of the kernel that takes what is not aligned
      for (const size_t offset : {0, 8}) {
        FLASHCORE_RETURN_IF_ERROR(
            record_launches(kernel, *planned, backward_arguments(offset), context,
                            kernel.wants_alignment && offset != 0 ? others : seen));
      }
    }
  }
  return {};
}

// Every listed kernel is one of its own, and can be loaded.
Status check_lists() {
  fake::use({90, 132, 227 * 1024});
  std::set<const void*> functions;
  for (const std::string_view family : cuda::launch::families()) {
    for (const cuda::launch::Instance& one : cuda::launch::instances(family)) {
      if (!functions.insert(one.function).second) {
        return {StatusCode::internal,
                fmt::format("{}: {} is another's function", family, one.name)};
      }
      cuda::launch::Kernel loaded;
      FLASHCORE_RETURN_IF_ERROR(cuda::launch::Loader(family, 0).load(loaded, family, one.name));
    }
  }
  cuda::launch::Kernel none;
  if (cuda::launch::Loader("any", 0).load(none, "forward_sm90_throughput", "fp16_config99").ok()) {
    return {StatusCode::internal, "forward_sm90_throughput: config 99 can be loaded"};
  }
  return {};
}

Status record_problems(const Variant& kernel, const std::vector<Problem>& problems,
                       const PlanContext& context, AllSeen& seen) {
  for (const Problem& problem : problems) {
    const Result<ForwardProblem> p = resolve(problem);
    if (!p.ok() || !refusal_of(kernel, *p, context).empty()) continue;
    FLASHCORE_RETURN_IF_ERROR(record_run(kernel, *p, context, seen));
    PlanContext with = context;
    for (std::string& config :
         kernel.candidates ? kernel.candidates(*p, context) : std::vector<std::string>()) {
      with.config = std::move(config);
      if (!refusal_of(kernel, *p, with).empty()) continue;
      FLASHCORE_RETURN_IF_ERROR(record_run(kernel, *p, with, seen));
    }
  }
  return {};
}

// On GPUs that their code is for.
Status record_calls(const PlanContext& context, AllSeen& seen) {
  for (const CallCase& one : call_cases()) {
    (void)fake::take_launches();
    const Status status = one.run(context.device);
    if (status.code() == StatusCode::unsupported) continue;
    if (!status.ok()) return status;
    keep(std::string(one.kernel), context, fake::take_launches(), seen);
  }
  return {};
}

void print(const AllSeen& seen) {
  const auto is_other = [](int capability) {  // no compiler's report is about them
    return std::any_of(std::begin(kOthers), std::end(kOthers),
                       [&](const auto& gpu) { return gpu.compute_capability == capability; });
  };
  for (const auto& [key, most] : seen.most) {
    const auto& [capability, kernel, function] = key;
    if (is_other(capability)) continue;
    fmt::print("sm_{} {} {} {} {}\n", capability, kernel, most.threads, most.dynamic_shared,
               function);
  }
  for (const auto& [key, cases] : seen.cases) {
    const auto& [capability, kernel] = key;
    if (is_other(capability)) continue;
    for (const std::vector<std::string>& functions : cases) {
      fmt::print("case sm_{} {} {}\n", capability, kernel, fmt::join(functions, " "));
    }
  }
}

Status record(AllSeen& seen) {
  FLASHCORE_RETURN_IF_ERROR(check_lists());
  fake::give_context(0);
  for (const auto& [gpu, device] : gpus_and_devices()) {
    fake::use(gpu);
    PlanContext context;
    context.device.device = {DeviceKind::cuda, device};
    context.device.compute_capability = gpu.compute_capability;
    context.device.multiprocessors = gpu.multiprocessors;
    context.device.shared_memory_per_block = gpu.shared_memory_per_block;
    FLASHCORE_RETURN_IF_ERROR(record_calls(context, seen));
    for (const Variant& kernel : variants()) {
      if (kernel.device != DeviceKind::cuda) continue;
      const Status status = [&]() -> Status {
        FLASHCORE_RETURN_IF_ERROR(record_backward(kernel, context, seen));
        return record_problems(kernel, problems(), context, seen);
      }();
      if (!status.ok()) return {status.code(), kernel.name + ": " + status.message()};
    }
  }
  return {};
}

}  // namespace
}  // namespace flashcore

int main(int count, char** words) {
  using namespace flashcore;
  const std::span<char*> all(words, static_cast<size_t>(count));
  AllSeen seen;
  if (const Status status = record(seen); !status.ok()) {
    fmt::print(stderr, "record_launches: {}\n", status.message());
    return 1;
  }
  print(seen);
  if (count != 3 || std::string_view(all[1]) != "--arguments") return seen.most.empty() ? 1 : 0;
  return record_standard_cases(all[2]);
}
