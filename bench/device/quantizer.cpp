#include "bench/device/quantizer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bench/device/device_memory.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

Status run_on_gpu(const PlanOptions& options, const Quantize& what,
                  const QuantizeTensors& tensors) {
  const Result<std::unique_ptr<DeviceMemory>> memory = device_memory(options.device);
  if (!memory.ok()) return memory.status();
  Status status;
  const auto copied = [&](const HostTensor* tensor) -> std::byte* {
    if (tensor == nullptr || !status.ok()) return nullptr;
    const Result<void*> copy = (*memory)->allocate(tensor->memory().size());
    status = copy.ok() ? (*memory)->copy_in(*copy, tensor->memory()) : copy.status();
    return status.ok() ? static_cast<std::byte*>(*copy) + tensor->origin() : nullptr;
  };
  std::byte* const x_out = copied(&tensors.x_out);
  std::byte* const scale = copied(&tensors.scale);
  std::byte* const mean = copied(tensors.mean);
  const QuantizeArguments arguments{
      .x = copied(&tensors.x),
      .x_out = x_out,
      .scale = reinterpret_cast<float*>(scale),
      .mean = reinterpret_cast<float*>(mean),
      .cu_seqlens = reinterpret_cast<const int32_t*>(copied(tensors.cu_seqlens)),
      .seqlens = reinterpret_cast<const int32_t*>(copied(tensors.seqlens))};
  FLASHCORE_RETURN_IF_ERROR(status);
  FLASHCORE_RETURN_IF_ERROR(quantize(what, arguments, options));
  FLASHCORE_RETURN_IF_ERROR((*memory)->synchronise());
  const auto fetch = [&](HostTensor* tensor, const std::byte* from) -> Status {
    if (tensor == nullptr) return {};
    return (*memory)->copy_out(tensor->memory(), from - tensor->origin());
  };
  FLASHCORE_RETURN_IF_ERROR(fetch(&tensors.x_out, x_out));
  FLASHCORE_RETURN_IF_ERROR(fetch(&tensors.scale, scale));
  return fetch(tensors.mean, mean);
}

}  // namespace

Quantizer quantizer_on(const PlanOptions& options) {
  if (options.device.kind == DeviceKind::cpu) return cpu_quantizer(options.threads);
  return [options](const Quantize& what, const QuantizeTensors& tensors) {
    return run_on_gpu(options, what, tensors);
  };
}

}  // namespace flashcore::bench
