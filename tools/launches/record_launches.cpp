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
#include "plan/table.hpp"
#include "problem/status.hpp"
#include "runs.hpp"
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

constexpr DType kE4m3 = DType::f8e4m3, kE5m2 = DType::f8e5m2;

bench::Case case_of(DType dtype, int64_t batch, int64_t heads, int64_t seqlen, int64_t head_dim) {
  return bench::square_case("", dtype, batch, heads, seqlen, head_dim, false);
}

// A few queries or many of 8 heads, over 2 heads of 4096 keys.
bench::Case cache_case(DType dtype, DType cache, int64_t seqlen_q, int64_t head_dim) {
  bench::Case one = case_of(dtype, 4, 8, seqlen_q, head_dim);
  one.heads_kv = 2;
  one.seqlen_kv = 4096;
  one.kv_dtype = cache;
  return one;
}

void add_shapes(std::vector<bench::Case>& all) {
  const std::tuple<int64_t, int64_t, int64_t> shapes[] = {
      {1, 8, 100}, {1, 8, 128}, {1, 8, 200}, {1, 4, 300},  {1, 4, 512},  {1, 8, 512},
      {8, 8, 200}, {8, 8, 256}, {8, 8, 300}, {2, 8, 2048}, {4, 32, 4096}};
  for (const auto& [batch, heads, seqlen] : shapes) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const bool causal : {false, true}) {
        for (const DType dtype : {DType::f16, DType::bf16, kE4m3}) {
          all.push_back(case_of(dtype, batch, heads, seqlen, head_dim));
          all.back().causal = causal;
          all.back().scales = dtype == kE4m3;
        }
      }
    }
  }
}

// Every compiled kernel of the throughput kernels, and of those over pages: head dimensions and features.
std::vector<Problem> problems_of_head_dims() {
  std::vector<Problem> all;
  for (const auto& [head_dim_qk, head_dim_v] : {std::pair<int64_t, int64_t>{64, 64},
                                                {80, 80},
                                                {96, 96},
                                                {112, 112},
                                                {128, 128},
                                                {160, 160},
                                                {192, 128},
                                                {192, 192},
                                                {256, 256}}) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      Problem dense;
      dense.q = dense.k = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim_qk});
      dense.v = dense.o = TensorDesc::contiguous(dtype, {1, 8, 512, head_dim_v});
      Problem paged = dense;
      paged.k = TensorDesc::contiguous(dtype, {16, 8, 64, head_dim_qk});
      paged.v = TensorDesc::contiguous(dtype, {16, 8, 64, head_dim_v});
      paged.page_table = TensorDesc::contiguous(DType::i32, {1, 16});
      for (Problem problem : {dense, paged}) {
        all.push_back(problem);
        problem.softcap = 20;
        all.push_back(problem);
      }
      Problem pairs = dense;
      pairs.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 512, 512});
      all.push_back(pairs);
      Problem scores = dense;
      scores.max_logit = TensorDesc::contiguous(DType::f32, {1, 8});
      all.push_back(scores);
      dense.dropout_p = 0.1F;
      dense.dropout_state = TensorDesc::contiguous(DType::i64, {2});
      all.push_back(dense);
    }
  }
  return all;
}

void add_caches(std::vector<bench::Case>& all) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const DType cache : {dtype, kE4m3, kE5m2}) {
      for (const int64_t head_dim : {64, 128, 256}) {
        for (const int64_t seqlen_q : {1, 4}) {  // 4 and 16 rows
          bench::Case one = cache_case(dtype, cache, seqlen_q, head_dim);
          all.push_back(one);
          one.tree = true;
          all.push_back(one);
          one.bias = DType::f32;
          all.push_back(one);
        }
      }
      bench::Case mla = cache_case(dtype, cache, 1, 576);
      mla.heads_q = 16;
      mla.heads_kv = 1;
      mla.head_dim_v = 512;
      mla.latent = true;
      all.push_back(mla);
      mla.batch = 64;  // rows of fewer parts
      all.push_back(mla);
    }
  }
}

std::vector<Problem> problems() {
  std::vector<bench::Case> cases;
  add_shapes(cases);
  add_caches(cases);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      cases.push_back(case_of(dtype, 1, 8, 512, head_dim));
      cases.back().seqlen_kv = 0;
    }
  }
  std::vector<Problem> all = problems_of_head_dims();
  for (const bench::Case& one : cases) all.push_back(bench::to_problem(one));
  Problem fp8;
  fp8.q = fp8.k = fp8.v = TensorDesc::contiguous(kE4m3, {1, 8, 512, 64});
  fp8.o = TensorDesc::contiguous(DType::f32, {1, 8, 512, 64});  // is converted, too
  all.push_back(fp8);
  fp8.o.dtype = kE4m3;  // stored so, with the largest values
  fp8.amax_o = TensorDesc::contiguous(DType::f32, {1, 8});
  all.push_back(fp8);
  bench::Case transposed = case_of(kE5m2, 1, 8, 512, 64);  // a V that no kernel reads so
  transposed.v_transposed = true;
  transposed.o_dtype = DType::bf16;
  all.push_back(bench::to_problem(transposed));
  return all;
}

struct BackwardCase {
  Problem problem;
  Gradients gradients;
};

// What a case has beyond the band: nothing, what changes scores, or gradients of it as well.
enum class Extra { none, softcap, mask, gradients };

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
  if (extra == Extra::mask) p.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 512, 512});
  if (extra == Extra::gradients) {
    p.bias = one.gradients.d_bias = TensorDesc::contiguous(dtype, {1, 8, 512, 512});
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
      for (const Extra extra : {Extra::none, Extra::softcap, Extra::mask, Extra::gradients}) {
        for (const bool packed : {false, true}) {
          if (packed && extra == Extra::mask) continue;  // no mask has the pairs of a packed batch
          all.push_back(backward_case(dtype, head_dim, extra, packed));
        }
      }
    }
  }
  return all;
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
  FLASHCORE_RETURN_IF_ERROR(planned.run(args, fake::workspace(planned.workspace_bytes), Stream{}));
  const std::vector<fake::Launch> launches = fake::take_launches();
  FLASHCORE_RETURN_IF_ERROR(expect_sound(kernel, context.device.device.index, launches));
  keep(kernel.name, context, launches, seen);
  return {};
}

// Tensors that no wide copy reaches: they are refused, or another kernel is launched for them.
Status run_unaligned(const Variant& kernel, const PlannedKernel& planned,
                     const PlanContext& context, AllSeen& seen) {
  const Status status =
      planned.run(fake::arguments(8), fake::workspace(planned.workspace_bytes), Stream{});
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
  FLASHCORE_RETURN_IF_ERROR(record_launches(kernel, *planned, fake::arguments(), context, seen));
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
            record_launches(kernel, *planned, fake::backward_arguments(offset), context,
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
    const PlanContext context = fake::context_of(gpu, device);
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
