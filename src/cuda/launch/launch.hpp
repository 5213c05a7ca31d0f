// Planning and running launches of compiled kernels: every kernel's host half does both by these.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "cuda/host/device_guard.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/launch/instance.hpp"
#include "flashcore/flashcore.hpp"
#include "kernel/kernel.hpp"
#include "problem/status.hpp"
#ifdef FLASHCORE_STUBS
#include "kernel_stubs.hpp"
#endif

namespace flashcore::cuda::launch {

// An instance, and what the driver of the GPU knows it by on which it was loaded. That costs a launch 0.15 to 0.2 us
// less than the runtime, which looks a kernel up in each. Without `function` the runtime launches it.
struct Kernel {
  const Instance* instance = nullptr;
  cudaFunction_t function = nullptr;
};

// One launch of it.
struct Grid {
  dim3 blocks;                    // none: nothing is launched
  bool early = false;             // may begin while earlier work of the stream still ends
  unsigned int threads = 0;       // of a block, where the instance leaves it open
  unsigned int shared_bytes = 0;  // dynamic, besides the instance's
};

// How names of instances spell an element type: fp16, bf16, fp32 or fp8.
std::string_view element_name(DType dtype);

// Without types, for Launcher. `signature`: of the arguments' types.
cudaError_t start(const Kernel& kernel, const Grid& grid, void** arguments, const char* signature,
                  cudaStream_t stream);

// The last step of start, which the simulator does by itself.
cudaError_t start_blocks(const Kernel& kernel, const Grid& grid, unsigned int threads,
                         void** arguments, cudaStream_t stream);

// A plan's GPU, current while this lives. `kernel` names the plan in errors.
class Loader {
 public:
  Loader(std::string_view kernel, int device) : kernel_(kernel), guard_(device) {}

  // Finds an instance and loads it, because a run may be captured in a graph, which may load nothing.
  Status load(Kernel& loaded, std::string_view family, std::string_view instance) const;

 private:
  std::string_view kernel_;
  host::DeviceGuard guard_;
};

// A run's GPU, current while this lives, and stream.
class Launcher {
 public:
  Launcher(std::string_view kernel, int device, Stream stream)
      : kernel_(kernel), guard_(device), stream_(static_cast<cudaStream_t>(stream.handle)) {}

  Status status() const;
  Status failed(std::string_view what, cudaError_t error) const {
    return error == cudaSuccess ? Status{} : host::cuda_failure(kernel_, what, error);
  }
  cudaStream_t stream() const { return stream_; }

  // The arguments have the types of the kernel's parameters.
  template <class... Arguments>
  Status launch(const Kernel& kernel, const Grid& grid, const Arguments&... arguments) const {
#ifdef FLASHCORE_STUBS  // tests of the host's side look at the arguments of every launch
    (fake::keep(arguments), ...);
#endif
    void* pointers[] = {const_cast<Arguments*>(&arguments)..., nullptr};
    return failed("the launch", start(kernel, grid, pointers, &kSignature<Arguments...>, stream_));
  }

  // Launches an instance that no plan has loaded, through the runtime.
  template <class... Arguments>
  Status launch(std::string_view family, std::string_view instance, const Grid& grid,
                const Arguments&... arguments) const {
    return launch(Kernel{.instance = find_instance(family, instance)}, grid, arguments...);
  }

 private:
  std::string_view kernel_;
  host::DeviceGuard guard_;
  cudaStream_t stream_;
};

// A plan (PlannedKernel or PlannedBackward) whose run is body(arguments, workspace, launcher), on GPU `device`.
template <class Planned, class Body>
Planned planned(std::string_view kernel, int device, size_t workspace_bytes, Body body) {
  return {.workspace_bytes = workspace_bytes,
          .run = [kernel, device, body = std::move(body)](
                     const auto& args, std::span<std::byte> workspace, Stream stream) -> Status {
            const Launcher launcher(kernel, device, stream);
            FLASHCORE_RETURN_IF_ERROR(launcher.status());
            return body(args, workspace, launcher);
          }};
}

// A plan that launches nothing, because no output has an element.
template <class Planned>
Planned nothing() {
  return {.run = [](const auto&, std::span<std::byte>, Stream) -> Status { return {}; }};
}

}  // namespace flashcore::cuda::launch
