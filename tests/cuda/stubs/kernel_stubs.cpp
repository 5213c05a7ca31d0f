// The rungs of the ladder without device code, and the arguments of every launch: with the lists of stubs that
// tools/instances.py makes, the host's side of every CUDA kernel is tested and fuzzed where there is no nvcc.
#include "tests/cuda/stubs/kernel_stubs.hpp"

#include <cuda_runtime_api.h>

#include <utility>

#include "cuda/ladder/rung.hpp"
#include "cuda/ladder/unfused_matrices.hpp"
#include "cuda/ladder/wmma_probe.hpp"

extern "C" void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*,
                                       dim3*, dim3*, int*);

namespace flashcore::fake {
namespace {

std::vector<std::byte>& arguments() {
  static std::vector<std::byte> bytes;
  return bytes;
}

}  // namespace

void keep_bytes(std::span<const std::byte> bytes) {
  arguments().insert(arguments().end(), bytes.begin(), bytes.end());
}
std::vector<std::byte> take_arguments() { return std::exchange(arguments(), {}); }

}  // namespace flashcore::fake

namespace flashcore::cuda::ladder {
namespace {

cudaError_t launch(const RungParams& params, cudaStream_t stream) {
  static const char rung = 0;
  static const bool is_registered = [] {
    __cudaRegisterFunction(nullptr, &rung, nullptr, "rung", 0, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
    return true;
  }();
  (void)is_registered;
  fake::keep(params);
  void* none[] = {nullptr};
  return cudaLaunchKernel(&rung, dim3(1), dim3(32), none, 0, stream);
}

size_t no_workspace(const RungParams& /*params*/) { return 0; }

}  // namespace

// As the ladder's: one without workspace for each kind of target, and the one with.
std::span<const Rung> rungs() {
  static const Rung table[] = {
      {"00_unfused", "", "", RungInput::fp16, 80, 0, unfused_workspace_bytes, launch},
      {"12_mma_sync", "", "", RungInput::fp16, 80, 0, no_workspace, launch},
      {"13_fp8_stage_c", "", "", RungInput::fp8_e4m3, 80, 0, no_workspace, launch},
      {"14_fp8_native", "", "", RungInput::fp8_e4m3, 89, 0, no_workspace, launch},
      {"15_wgmma_tma", "", "", RungInput::fp16, 90, 90, no_workspace, launch}};
  return table;
}

cudaError_t probe_wmma_layout(bool* matches) {
  *matches = true;
  return cudaSuccess;
}

}  // namespace flashcore::cuda::ladder
