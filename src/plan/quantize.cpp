// The public interface of quantisation.
#include "flashcore/quantize.hpp"

#include "cpu/quantize.hpp"
#include "cpu/simd/kernels.hpp"
#include "cpu/target.hpp"
#include "plan/call.hpp"
#include "plan/cuda_calls.hpp"
#include "problem/quantize.hpp"
#include "problem/status.hpp"

namespace flashcore {

Status quantize(const Quantize& what, const QuantizeArguments& arguments,
                const PlanOptions& options, Stream stream) {
  const Result<QuantizeProblem> problem = resolve(what);
  if (!problem.ok()) return problem.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  if (options.device.kind != DeviceKind::cpu) {
    FLASHCORE_RETURN_IF_ERROR(check_arguments(what, *problem, arguments, false));
    return run_on_gpu(*problem, arguments, context->device, stream);
  }
  if (cpu::kernels_of(cpu::target_for(false)).quantize == nullptr) {
    return unsupported("device: quantize has no kernel for this processor, wanted SSE4.2 or later");
  }
  FLASHCORE_RETURN_IF_ERROR(check_arguments(what, *problem, arguments, true));
  return without_exceptions([&] { cpu::quantize(*problem, arguments, context->threads); });
}

}  // namespace flashcore
