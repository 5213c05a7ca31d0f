// The public interface of V's transposition.
#include "cpu/transpose_v.hpp"

#include "flashcore/quantize.hpp"
#include "plan/call.hpp"
#include "plan/cuda_calls.hpp"
#include "problem/status.hpp"

namespace flashcore {

Status transpose_v(const TensorDesc& v, const void* data, const TensorDesc& v_out, void* out,
                   const PlanOptions& options, Stream stream) {
  const Result<TransposeProblem> problem = resolve_transpose(v, v_out);
  if (!problem.ok()) return problem.status();
  const Result<PlanContext> context = resolve_context(options);
  if (!context.ok()) return context.status();
  FLASHCORE_RETURN_IF_ERROR(check_transpose_pointers(v, data, v_out, out));
  if (options.device.kind != DeviceKind::cpu) {
    return run_on_gpu(*problem, data, out, context->device, stream);
  }
  return without_exceptions([&] { cpu::transpose_v(*problem, data, out, context->threads); });
}

}  // namespace flashcore
