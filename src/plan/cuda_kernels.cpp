#include "plan/cuda_kernels.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "cuda/backward_sm80/general/plan.hpp"
#include "cuda/backward_sm90/throughput/plan.hpp"
#include "cuda/backward_sm90/wide/plan.hpp"
#include "cuda/decode_sm80/split_kv/plan.hpp"
#include "cuda/decode_sm90/stream_kv/plan.hpp"
#include "cuda/forward_fp8/converted/plan.hpp"
#include "cuda/forward_fp8/v_rows/plan.hpp"
#include "cuda/forward_fp8_sm89/throughput/plan.hpp"
#include "cuda/forward_fp8_sm90/throughput/plan.hpp"
#include "cuda/forward_sm80/latency/plan.hpp"
#include "cuda/forward_sm80/throughput/plan.hpp"
#include "cuda/forward_sm90/latency/plan.hpp"
#include "cuda/forward_sm90/latency_wide/plan.hpp"
#include "cuda/forward_sm90/throughput/plan.hpp"
#include "cuda/ladder/plan.hpp"
#include "plan/backward_choice.hpp"
#include "plan/forward_choice.hpp"
#include "plan/kernel_choice.hpp"
#include "problem/dtypes.hpp"

namespace flashcore {
namespace {

namespace sm80 = cuda::forward_sm80;
namespace sm90 = cuda::forward_sm90;

constexpr uintptr_t kAlignment = 16;

bool are_aligned(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kAlignment == 0;
  });
}
bool is_aligned(const Arguments& args) { return are_aligned({args.q, args.k, args.v, args.o}); }
bool is_aligned(const BackwardArguments& args) {
  return is_aligned(args.forward) && are_aligned({args.d_o, args.dq, args.dk, args.dv});
}

// A config belongs to one kernel, so the other kernel gets none.
PlanContext with_own_choice(PlanContext context) {
  context.config.clear();
  return context;
}

// Pointers are known only at run time. Runs whose pointers are not aligned as `kernel` needs go to
// `other`, which takes any.
Kernel for_any_pointers(Kernel kernel, const Kernel& other) {
  kernel.plan = [own = std::move(kernel.plan), other = other.plan](
                    const ForwardProblem& p, const PlanContext& context) -> Result<PlannedKernel> {
    Result<PlannedKernel> aligned = own(p, context);
    if (!aligned.ok()) return aligned.status();
    Result<PlannedKernel> any = other(p, with_own_choice(context));
    if (!any.ok()) return any.status();
    return PlannedKernel{
        .workspace_bytes = std::max(aligned->workspace_bytes, any->workspace_bytes),
        .run = [aligned = std::move(aligned->run), any = std::move(any->run)](
                   const Arguments& args, std::span<std::byte> workspace, Stream stream) {
          return (is_aligned(args) ? aligned : any)(args, workspace, stream);
        }};
  };
  return kernel;
}

// The kernel also refuses every problem that `other` refuses.
Kernel unless_refused(Kernel kernel, const Kernel& other) {
  kernel.supports =
      but_not(kernel.supports, [other](const ForwardProblem& p, const PlanContext& context) {
        return refusal_of(other, p, context);
      });
  return kernel;
}

// for_any_pointers() for a backward pass.
Kernel backward_for_any_pointers(Kernel kernel, const Kernel& other) {
  kernel.backward.plan = [own = std::move(kernel.backward.plan), other = other.backward.plan](
                             const BackwardProblem& problem,
                             const PlanContext& context) -> Result<PlannedBackward> {
    Result<PlannedBackward> aligned = own(problem, context);
    if (!aligned.ok()) return aligned.status();
    Result<PlannedBackward> any = other(problem, with_own_choice(context));
    if (!any.ok()) return any.status();
    return PlannedBackward{
        .workspace_bytes = std::max(aligned->workspace_bytes, any->workspace_bytes),
        .run = [aligned = std::move(aligned->run), any = std::move(any->run)](
                   const BackwardArguments& args, std::span<std::byte> workspace, Stream stream) {
          return (is_aligned(args) ? aligned : any)(args, workspace, stream);
        }};
  };
  return kernel;
}

// Adds reasons to decline to a kernel's own. Which kernel is faster is decided here, not in the
// kernel, so that its measurements stay valid for every choice.
template <class Declines>
Kernel declining(Kernel kernel, Declines declines) {
  kernel.declines = [own = std::move(kernel.declines), more = std::move(declines)](
                        const ForwardProblem& p, const PlanContext& context) -> std::string {
    std::string why = own ? own(p, context) : std::string();
    return why.empty() ? more(p, context) : why;
  };
  return kernel;
}

// The kernel that is chosen for the problem inside of another kernel. If none is chosen, the
// refusal of `most`, the kernel that computes most problems.
cuda::forward_fp8::Inner choose_inner(const ForwardProblem& p, const PlanContext& context,
                                      std::string_view most) {
  KernelChoice choice = choose_kernel(p, context);
  if (choice.kernel != nullptr) return {choice.kernel, std::move(choice.config), {}};
  for (const KernelVerdict& said : choice.verdicts) {
    if (said.kernel == most) return {nullptr, {}, said.refusal};
  }
  return {nullptr, {}, choice.reason};
}

// Chooses a kernel for an fp8 problem that was converted to 16 bits.
cuda::forward_fp8::Inner choose_16_bit(const ForwardProblem& p, const PlanContext& context) {
  return choose_inner(p, context, "forward_sm80_throughput");
}

// Chooses a kernel for a problem whose V was transposed back into rows.
cuda::forward_fp8::Inner choose_for_rows(const ForwardProblem& p, const PlanContext& context) {
  return choose_inner(p, context, is_fp8(p.dtype) ? "forward_sm80_fp8" : "decode_sm80");
}

}  // namespace

std::vector<Kernel> cuda_kernels() {
  std::vector<Kernel> hopper = sm90::throughput::kernels(choose_sm90_tile);
  hopper[0].declines = sm90_throughput_declines;
  const auto unless_fastest = [next = hopper[0]](LatencyKernel kernel) {
    return [next, kernel](const ForwardProblem& p, const PlanContext& context) {
      return sm90_latency_declines(p, context, next, kernel);
    };
  };
  std::vector<Kernel> ampere = sm80::throughput::kernels();
  for (Kernel& kernel : ampere) {
    if (kernel.name == "forward_sm80_fp8") kernel = declining(std::move(kernel), fp8_declines);
  }
  const Kernel any_cache = cuda::decode_sm80::split_kv::kernel();

  std::vector<Kernel> table;
  table.push_back(declining(cuda::decode_sm90::stream_kv::kernel(), sm90_decode_declines));
  table.push_back(declining(sm90::latency::kernel(), unless_fastest(LatencyKernel::latency)));
  table.push_back(
      declining(sm90::latency_wide::kernel(), unless_fastest(LatencyKernel::latency_wide)));
  table.insert(table.end(), hopper.begin(), hopper.end());
  for (Kernel& kernel : cuda::forward_fp8_sm90::throughput::kernels()) {
    table.push_back(declining(std::move(kernel), fp8_declines));
  }
  for (Kernel& kernel : cuda::forward_fp8_sm89::throughput::kernels()) {
    table.push_back(std::move(kernel));
  }
  table.push_back(declining(sm80::latency::kernel(), sm80_latency_declines));
  table.insert(table.end(), ampere.begin(), ampere.end());
  table.push_back(
      unless_refused(declining(sm90::throughput::paged_kernel(), sm90_paged_declines), any_cache));
  table.push_back(
      unless_refused(declining(sm80::throughput::paged_kernel(), sm80_paged_declines), any_cache));
  table.push_back(any_cache);
  table.push_back(cuda::forward_fp8::converted::kernel(choose_16_bit));
  table.push_back(cuda::forward_fp8::v_rows::kernel(choose_for_rows));
  const Kernel any_backward = cuda::backward_sm80::general::kernel();
  Kernel split = cuda::backward_sm90::throughput::split_kernel();
  split.backward.declines = sm90_split_declines;
  table.push_back(backward_for_any_pointers(std::move(split), any_backward));
  table.push_back(
      backward_for_any_pointers(cuda::backward_sm90::throughput::kernel(), any_backward));
  table.push_back(backward_for_any_pointers(cuda::backward_sm90::wide::kernel(), any_backward));
  table.push_back(any_backward);
  for (Kernel& kernel : cuda::ladder::kernels()) table.push_back(std::move(kernel));
  for (Kernel& kernel : table) {
    const bool reads_pages = kernel.supports.features.has(Feature::page_table);
    if (kernel.wants_alignment && kernel.plan)
      kernel = for_any_pointers(std::move(kernel), reads_pages ? any_cache : ampere[0]);
  }
  return table;
}

}  // namespace flashcore
