// Plans and runs every CUDA kernel of the table, and each call, for each GPU family and on each of
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
#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
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
#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/backward_sm80/general/launch.hpp"
#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/launch.hpp"
#include "cuda/backward_sm90/throughput/split/config.hpp"
#include "cuda/backward_sm90/throughput/split/launch.hpp"
#include "cuda/backward_sm90/wide/launch.hpp"
#include "cuda/decode_sm80/split_kv/config.hpp"
#include "cuda/decode_sm80/split_kv/launch.hpp"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/launch.hpp"
#include "cuda/forward_sm80/latency/config.hpp"
#include "cuda/forward_sm80/latency/launch.hpp"
#include "cuda/forward_sm90/latency/config.hpp"
#include "cuda/forward_sm90/latency/launch.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/launch.hpp"
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
// By compute capability and kernel.
struct AllSeen {
  std::map<std::tuple<int, std::string, std::string>, Seen> most;  // of each function
  std::map<std::pair<int, std::string>, std::set<std::vector<std::string>>> cases;
};

// An error that the caller made and has not looked at yet.
constexpr int kCallersError = 719;

// Whatever GPU is current, a plan launches on its own, and leaves the other current; kernels get no
// tensor map that nothing wrote, and those of production are loaded when planning, since a run may
// be captured in a graph. The caller finds its own errors.
Status expect_sound(const Kernel& kernel, int device, const std::vector<fake::Launch>& launches) {
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
Status record_launches(const Kernel& kernel, const Planned& planned, const Args& args,
                       const PlanContext& context, AllSeen& seen) {
  (void)fake::take_launches();  // those of planning are not the kernel's
  fake::set_last_error(kCallersError);
  FLASHCORE_RETURN_IF_ERROR(planned.run(args, workspace(planned.workspace_bytes), Stream{}));
  const std::vector<fake::Launch> launches = fake::take_launches();
  FLASHCORE_RETURN_IF_ERROR(expect_sound(kernel, context.device.device.index, launches));
  keep(kernel.name, context, launches, seen);
  return {};
}

// Tensors that no wide copy reaches: they are refused, or another kernel is launched for them.
Status run_unaligned(const Kernel& kernel, const PlannedKernel& planned, const PlanContext& context,
                     AllSeen& seen) {
  const Status status = planned.run(arguments(8), workspace(planned.workspace_bytes), Stream{});
  const std::vector<fake::Launch> launches = fake::take_launches();
  if (status.code() == StatusCode::invalid_argument && launches.empty()) return {};
  if (status.ok() && launches.empty())
    return {StatusCode::device_error, "unaligned: nothing is launched"};
  // Otherwise they are of the kernel that takes what is not aligned.
  if (!kernel.wants_alignment) keep(kernel.name, context, launches, seen);
  return status;
}

Status record_run(const Kernel& kernel, const ForwardProblem& p, const PlanContext& context,
                  AllSeen& seen) {
  const Result<PlannedKernel> planned = kernel.plan(p, context);
  if (!planned.ok()) return planned.status();
  FLASHCORE_RETURN_IF_ERROR(record_launches(kernel, *planned, arguments(), context, seen));
  return run_unaligned(kernel, *planned, context, seen);
}

Status record_backward(const Kernel& kernel, PlanContext context, AllSeen& seen) {
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

// Launches one compiled kernel; an error when it is another than the one that was asked for.
template <class Launcher>
Status expect_instance(const std::string& wanted, const Launcher& launch) {
  (void)fake::take_launches();
  const cudaError_t error = launch();
  const std::vector<fake::Launch> launches = fake::take_launches();
  // An instance that no GPU of this build runs is not compiled.
  if (error == cudaErrorInvalidDeviceFunction && launches.empty()) return {};
  if (error != cudaSuccess || launches.size() != 1) {
    return {StatusCode::internal, fmt::format("{}: is not launched", wanted)};
  }
  int status = 0;
  char* const plain = abi::__cxa_demangle(launches[0].kernel.c_str(), nullptr, nullptr, &status);
  const std::string name = plain != nullptr ? plain : launches[0].kernel;
  std::free(plain);
  if (name.find(wanted) != std::string::npos) return {};
  return {StatusCode::internal, fmt::format("{}: {} is launched", wanted, name)};
}

Status check_backward_instances() {
  namespace general = cuda::backward_sm80::general;
  using general::ElementType, general::Features, general::Output;
  constexpr const char* kRoom = "flashcore::cuda::backward_sm80::general::";
  for (int config = 0; config < static_cast<int>(general::kConfigs.size()); ++config) {
    const bool fp32 = config >= general::kHalfConfigs;
    const bool both = general::has_both(general::kConfigs[static_cast<size_t>(config)]);
    for (const auto& [type, element] : {std::pair{ElementType::f32, "Fp32"},
                                        {ElementType::f16, "Fp16"},
                                        {ElementType::bf16, "Bf16"}}) {
      for (const Output output :
           {Output::dq, Output::dk_dv, Output::dk, Output::dv, Output::d_bias}) {
        for (const Features features : {Features::none, Features::all}) {
          const bool of_bias = output == Output::d_bias;
          const bool apart = output == Output::dk || output == Output::dv;
          const bool is_compiled = (type == ElementType::f32) == fp32 &&
                                   (features == Features::all || (!fp32 && !of_bias && !both)) &&
                                   !(output == Output::dk_dv && !both) && !(apart && both);
          if (!is_compiled) continue;
          const auto& entry = general::find_instance({type, config, output, features});
          const std::string wanted =
              of_bias
                  ? fmt::format("::bias_gradient_kernel<{}, {}{}>", config, kRoom, element)
                  : fmt::format("::gradient_kernel<{0}, {1}{2}, ({1}Output){3}, ({1}Features){4}>",
                                config, kRoom, element, static_cast<int>(output),
                                static_cast<int>(features));
          FLASHCORE_RETURN_IF_ERROR(expect_instance(wanted, [&] {
            const cudaError_t error = entry.prepare();
            return error != cudaSuccess ? error : entry.launch({}, 1, nullptr);
          }));
        }
      }
    }
  }
  return {};
}

Status check_joint_instances() {
  namespace general = cuda::backward_sm80::general;
  using general::ElementType, general::Features, general::Output;
  constexpr const char* kRoom = "flashcore::cuda::backward_sm80::general::";
  for (int config = 0; config < static_cast<int>(general::kJointConfigs.size()); ++config) {
    for (const auto& [type, element] :
         {std::pair{ElementType::f16, "Fp16"}, {ElementType::bf16, "Bf16"}}) {
      for (const Features features : {Features::none, Features::all}) {
        const auto& entry = general::find_instance({type, config, Output::joint, features});
        const std::string wanted = fmt::format("::joint_kernel<{0}, {1}{2}, ({1}Features){3}>",
                                               config, kRoom, element, static_cast<int>(features));
        FLASHCORE_RETURN_IF_ERROR(expect_instance(wanted, [&] {
          const cudaError_t error = entry.prepare();
          return error != cudaSuccess ? error : entry.launch({}, 1, nullptr);
        }));
      }
    }
  }
  return {};
}

Status check_hopper_instance(int type, int config, bool in_turn, bool options) {
  namespace hopper = cuda::backward_sm90::throughput;
  const char* const elements[] = {"Fp16", "Bf16"};
  const auto& entry =
      hopper::find_instance({static_cast<hopper::InputType>(type), config, in_turn, options});
  const std::string element = fmt::format("flashcore::cuda::backward_sm90::{}", elements[type]);
  const std::string wanted =
      options ? fmt::format("::option_gradient_kernel<{}, {}>", config, element)
              : fmt::format("::gradient_kernel<{}, {}, {}>", config, element, in_turn);
  return expect_instance(wanted, [&] {
    const cudaError_t error = entry.prepare();
    hopper::OptionParams params{};
    params.order = {.batch_heads = 1, .q_tiles = 1, .section_heads = 1, .longest_first = false};
    return error != cudaSuccess ? error : entry.launch({}, params, nullptr);
  });
}

Status check_split_instance(int type, int config) {
  namespace hopper = cuda::backward_sm90::throughput;
  const char* const elements[] = {"Fp16", "Bf16"};
  for (const int splits : cuda::backward_sm90::split::kSplits) {
    const auto& entry = cuda::backward_sm90::split::find_instance(
        {static_cast<hopper::InputType>(type), config, splits});
    const std::string wanted =
        fmt::format("::split_gradient_kernel<{}, flashcore::cuda::backward_sm90::{}, {}>", config,
                    elements[type], splits);
    FLASHCORE_RETURN_IF_ERROR(expect_instance(wanted, [&] {
      const cudaError_t error = entry.prepare();
      hopper::Params params{};
      params.order = {.batch_heads = 1, .q_tiles = 1, .section_heads = 1, .longest_first = false};
      return error != cudaSuccess ? error : entry.launch({}, params, nullptr);
    }));
  }
  return {};
}

Status check_wide_instance(int type, bool options) {
  namespace wide = cuda::backward_sm90::wide;
  const char* const elements[] = {"Fp16", "Bf16"};
  const auto& entry = wide::find_instance({static_cast<wide::InputType>(type), options});
  const std::string wanted =
      fmt::format("::{}<flashcore::cuda::backward_sm90::{}>",
                  options ? "wide_option_kernel" : "wide_gradient_kernel", elements[type]);
  return expect_instance(wanted, [&] {
    const cudaError_t error = entry.prepare();
    wide::OptionParams params{};
    params.query_order = params.key_order = {
        .batch_heads = 1, .q_tiles = 1, .section_heads = 1, .longest_first = false};
    return error != cudaSuccess ? error : entry.launch({}, params, nullptr);
  });
}

Status check_hopper_backward_instances() {
  namespace hopper = cuda::backward_sm90::throughput;
  for (int type = 0; type < 2; ++type) {
    for (int config = 0; config < static_cast<int>(hopper::kConfigs.size()); ++config) {
      if (config < hopper::kPlainConfigs) {
        FLASHCORE_RETURN_IF_ERROR(check_hopper_instance(type, config, false, false));
        FLASHCORE_RETURN_IF_ERROR(check_hopper_instance(type, config, true, false));
        FLASHCORE_RETURN_IF_ERROR(check_split_instance(type, config));
      }
      FLASHCORE_RETURN_IF_ERROR(check_hopper_instance(type, config, true, true));
    }
    FLASHCORE_RETURN_IF_ERROR(check_wide_instance(type, false));
    FLASHCORE_RETURN_IF_ERROR(check_wide_instance(type, true));
  }
  return {};
}

// Every compiled kernel is the one that its place in the list of its family says. launch: prepares an
// entry and launches it, with arguments of its own.
template <class Find, class Launch>
Status check_decode_kernels(const std::string& kernel, size_t configs, Find find, Launch launch) {
  using cuda::attention::decode::InputType;
  for (const auto& [type, element] :
       {std::pair{InputType::f16, "Fp16"}, {InputType::bf16, "Bf16"}}) {
    for (int config = 0; config < static_cast<int>(configs); ++config) {
      const auto& entry = find(type, config);
      FLASHCORE_RETURN_IF_ERROR(expect_instance(
          fmt::format("::{}<{}, flashcore::cuda::attention::decode::{}>", kernel, config, element),
          [&] { return launch(entry); }));
    }
  }
  return {};
}

Status check_decode_instances() {
  namespace sm80 = cuda::decode_sm80::split_kv;
  namespace sm90 = cuda::decode_sm90::stream_kv;
  FLASHCORE_RETURN_IF_ERROR(check_decode_kernels(
      "decode_kernel", sm80::kConfigs.size(), [](auto type, int config) -> const auto& {
        return sm80::find_instance({type, config});
      },
      [](const auto& entry) {
        const cudaError_t error = entry.prepare();
        return error != cudaSuccess ? error : entry.launch({}, 1, nullptr);
      }));
  return check_decode_kernels(
      "decode_stream_kernel", sm90::kConfigs.size(), [](auto type, int config) -> const auto& {
        return sm90::find_instance({type, config});
      },
      [](const auto& entry) {
        cudaFunction_t function = nullptr;
        const cudaError_t error = entry.prepare(function);
        return error != cudaSuccess ? error
                                    : entry.launch(function, {}, {}, {1, 1}, false, nullptr);
      });
}

Status check_instances() {
  using namespace cuda;
  fake::use({90, 132, 227 * 1024});
  const char* const elements[] = {"Fp16", "Bf16"};
  for (int type = 0; type < 2; ++type) {
    const std::string element = elements[type];
    for (int config = 0; config < static_cast<int>(forward_sm90::throughput::kConfigs.size());
         ++config) {
      const forward_sm90::throughput::Config& c =
          forward_sm90::throughput::kConfigs[static_cast<size_t>(config)];
      const auto expect = [&](bool features, bool paged) {
        const auto& entry = forward_sm90::throughput::find_instance(
            {static_cast<forward_sm90::throughput::InputType>(type), config, features, paged});
        return expect_instance(
            fmt::format("::{}_kernel<{}, flashcore::cuda::forward_sm90::throughput::{}, {}>",
                        paged ? "paged" : "forward", config, element, features),
            [&] {
              const cudaError_t error = entry.prepare();
              return error != cudaSuccess ? error : entry.launch({}, {}, 1, nullptr);
            });
      };
      for (const bool features : {false, true}) {
        if (!(features ? c.features : c.plain)) continue;
        FLASHCORE_RETURN_IF_ERROR(expect(features, false));
      }
      for (const auto& paged : forward_sm90::throughput::kPagedConfigs) {
        if (paged.row != config) continue;
        FLASHCORE_RETURN_IF_ERROR(expect(false, true));
        if (paged.features) FLASHCORE_RETURN_IF_ERROR(expect(true, true));
      }
    }
    for (int config = 0; config < static_cast<int>(forward_sm90::latency::kConfigs.size());
         ++config) {
      for (const int cover : {0, 1, 2}) {
        const auto& entry = forward_sm90::latency::find_instance(
            {static_cast<forward_sm90::InputType>(type), config,
             static_cast<attention::latency::Cover>(cover)});
        FLASHCORE_RETURN_IF_ERROR(expect_instance(
            fmt::format("::forward_latency_kernel<{}, flashcore::cuda::forward_sm90::{}, "
                        "(flashcore::cuda::attention::latency::Cover){}>",
                        config, element, cover),
            [&] {
              cudaFunction_t function = nullptr;
              const cudaError_t error = entry.prepare(function);
              return error != cudaSuccess
                         ? error
                         : entry.launch(function, {}, {}, {1, 1, 1}, false, nullptr);
            }));
      }
    }
    for (int config = 0; config < static_cast<int>(forward_sm80::latency::kConfigs.size());
         ++config) {
      for (const bool whole : {false, true}) {
        const auto& entry = forward_sm80::latency::find_instance(
            {static_cast<forward_sm80::latency::InputType>(type), config, whole});
        FLASHCORE_RETURN_IF_ERROR(expect_instance(
            fmt::format(
                "::forward_latency_kernel<{}, flashcore::cuda::forward_sm80::latency::{}, {}>",
                config, element, whole),
            [&] {
              cudaFunction_t function = nullptr;
              const cudaError_t error = entry.prepare(function);
              return error != cudaSuccess ? error : entry.launch(function, {}, {1, 1, 1}, nullptr);
            }));
      }
    }
  }
  if (forward_sm90::throughput::find_instance(
          {forward_sm90::throughput::InputType::f16, 99, false, false})
          .prepare() == cudaSuccess) {
    return {StatusCode::internal, "forward_sm90_throughput: row 99 of its table can be prepared"};
  }
  FLASHCORE_RETURN_IF_ERROR(check_decode_instances());
  FLASHCORE_RETURN_IF_ERROR(check_backward_instances());
  FLASHCORE_RETURN_IF_ERROR(check_joint_instances());
  return check_hopper_backward_instances();
}

Status record_problems(const Kernel& kernel, const std::vector<Problem>& problems,
                       const PlanContext& context, AllSeen& seen) {
  for (const Problem& problem : problems) {
    const Result<ForwardProblem> p = resolve(problem);
    if (!p.ok() || !refusal_of(kernel, *p, context).empty()) continue;
    FLASHCORE_RETURN_IF_ERROR(record_run(kernel, *p, context, seen));
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
  FLASHCORE_RETURN_IF_ERROR(check_instances());
  fake::give_context(0);
  for (const auto& [gpu, device] : gpus_and_devices()) {
    fake::use(gpu);
    PlanContext context;
    context.device.device = {DeviceKind::cuda, device};
    context.device.compute_capability = gpu.compute_capability;
    context.device.multiprocessors = gpu.multiprocessors;
    context.device.shared_memory_a_block = gpu.shared_memory_a_block;
    FLASHCORE_RETURN_IF_ERROR(record_calls(context, seen));
    for (const Kernel& kernel : kernels()) {
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
