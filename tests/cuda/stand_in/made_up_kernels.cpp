// Kernels without device code, in the place of the compiled ones: so that the host's side of every
// CUDA kernel, its plans above all, is tested and fuzzed where there is no nvcc.
#include "tests/cuda/stand_in/made_up_kernels.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "cuda/backward_sm80/general/launch.hpp"
#include "cuda/backward_sm90/throughput/launch.hpp"
#include "cuda/backward_sm90/throughput/split/launch.hpp"
#include "cuda/backward_sm90/wide/launch.hpp"
#include "cuda/host/driver_launch.hpp"
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

// One for each name, known to the runtime.
template <int kNumber>
const void* kernel(const char* name) {
  static const char host_function = 0;
  static const bool is_registered = [&] {
    __cudaRegisterFunction(nullptr, &host_function, nullptr, name, 0, nullptr, nullptr, nullptr,
                           nullptr, nullptr);
    return true;
  }();
  (void)is_registered;
  return &host_function;
}

cudaError_t load(const void* function) {
  return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, 1);
}

template <class... Arguments>
cudaError_t launch(const void* function, unsigned int blocks, cudaStream_t stream,
                   const Arguments&... given) {
  (keep(given), ...);
  void* none[] = {nullptr};
  return cudaLaunchKernel(function, dim3(blocks), dim3(32), none, 0, stream);
}

template <class... Arguments>
cudaError_t launch_by_driver(cudaFunction_t function, const void* host_function,
                             cudaStream_t stream, const Arguments&... given) {
  (keep(given), ...);
  void* none[] = {nullptr};
  return cuda::host::launch_function(function, host_function, {.grid = dim3(1), .threads = 32},
                                     none, stream);
}

}  // namespace

void keep_bytes(std::span<const std::byte> bytes) {
  arguments().insert(arguments().end(), bytes.begin(), bytes.end());
}
std::vector<std::byte> take_arguments() { return std::exchange(arguments(), {}); }

}  // namespace flashcore::fake

namespace flashcore::cuda {

namespace backward_sm80::general {

const InstanceEntry& find_instance(const Instance& /*instance*/) {
  static const InstanceEntry entry = {
      [] { return fake::load(fake::kernel<7>("backward_sm80")); },
      [](const Params& params, unsigned int blocks, cudaStream_t stream) {
        return fake::launch(fake::kernel<7>("backward_sm80"), blocks, stream, params);
      }};
  return entry;
}

cudaError_t prepare_rows() { return fake::load(fake::kernel<8>("rows")); }

cudaError_t launch_note_rows(const Params& params, int64_t rows, cudaStream_t stream) {
  return fake::launch(fake::kernel<8>("rows"), 1, stream, params, rows);
}

cudaError_t launch_store_dq(const Params& params, int, unsigned int blocks, cudaStream_t stream) {
  return fake::launch(fake::kernel<8>("rows"), blocks, stream, params);
}

cudaError_t launch_zero_rows(const Target& target, int64_t rows, int64_t head_rows,
                             cudaStream_t stream) {
  return fake::launch(fake::kernel<8>("rows"), 1, stream, target, rows, head_rows);
}

cudaError_t launch_add_rows(const Params& params, const HeadSum& sum, cudaStream_t stream) {
  return fake::launch(fake::kernel<8>("rows"), 1, stream, params, sum);
}

}  // namespace backward_sm80::general

namespace backward_sm90::throughput {

const InstanceEntry& find_instance(const Instance& /*instance*/) {
  static const InstanceEntry entry = {
      [] { return fake::load(fake::kernel<9>("backward_sm90")); },
      [](const Maps& maps, const OptionParams& params, cudaStream_t stream) {
        return fake::launch(fake::kernel<9>("backward_sm90"), params.order.size(), stream, maps,
                            params);
      }};
  return entry;
}

cudaError_t prepare_rows(InputType /*type*/, int /*config*/) {
  return fake::load(fake::kernel<10>("backward_sm90_rows"));
}

cudaError_t begin_rows(InputType /*type*/, int /*config*/, const Params& params,
                       cudaStream_t stream) {
  return fake::launch(fake::kernel<10>("backward_sm90_rows"), 1, stream, params);
}

cudaError_t end_rows(InputType /*type*/, int /*config*/, const Params& params,
                     cudaStream_t stream) {
  return fake::launch(fake::kernel<10>("backward_sm90_rows"), 1, stream, params);
}

cudaError_t prepare_option_rows(InputType type, int config) { return prepare_rows(type, config); }

cudaError_t begin_option_rows(InputType /*type*/, int /*config*/, const OptionParams& params,
                              cudaStream_t stream) {
  return fake::launch(fake::kernel<10>("backward_sm90_rows"), 1, stream, params);
}

cudaError_t end_option_rows(InputType /*type*/, int /*config*/, const OptionParams& params,
                            cudaStream_t stream) {
  return fake::launch(fake::kernel<10>("backward_sm90_rows"), 1, stream, params);
}

}  // namespace backward_sm90::throughput

namespace backward_sm90::split {

const InstanceEntry& find_instance(const Instance& /*instance*/) {
  static const InstanceEntry entry = {
      [] { return fake::load(fake::kernel<9>("backward_sm90")); },
      [](const throughput::Maps& maps, const throughput::Params& params, cudaStream_t stream) {
        return fake::launch(fake::kernel<9>("backward_sm90"), params.order.size(), stream, maps,
                            params);
      }};
  return entry;
}

}  // namespace backward_sm90::split

namespace backward_sm90::wide {

const InstanceEntry& find_instance(const Instance& /*instance*/) {
  static const InstanceEntry entry = {
      [] { return fake::load(fake::kernel<11>("backward_sm90_wide")); },
      [](const Maps& maps, const OptionParams& params, cudaStream_t stream) {
        return fake::launch(fake::kernel<11>("backward_sm90_wide"), params.blocks(), stream, maps,
                            params);
      }};
  return entry;
}

cudaError_t prepare_rows(InputType /*type*/) {
  return fake::load(fake::kernel<12>("backward_sm90_wide_rows"));
}

cudaError_t begin_rows(InputType /*type*/, const Params& params, cudaStream_t stream) {
  return fake::launch(fake::kernel<12>("backward_sm90_wide_rows"), 1, stream, params);
}

cudaError_t end_rows(InputType /*type*/, const Params& params, cudaStream_t stream) {
  return fake::launch(fake::kernel<12>("backward_sm90_wide_rows"), 1, stream, params);
}

cudaError_t prepare_option_rows(InputType type) { return prepare_rows(type); }

cudaError_t begin_option_rows(InputType /*type*/, const OptionParams& params, cudaStream_t stream) {
  return fake::launch(fake::kernel<12>("backward_sm90_wide_rows"), 1, stream, params);
}

cudaError_t end_option_rows(InputType /*type*/, const OptionParams& params, cudaStream_t stream) {
  return fake::launch(fake::kernel<12>("backward_sm90_wide_rows"), 1, stream, params);
}

}  // namespace backward_sm90::wide

namespace ladder {

// As the ladder's: one without workspace for each kind of target, and the one with.
std::span<const Rung> rungs() {
  constexpr auto kLaunch = [](const RungParams& params, cudaStream_t stream) {
    return fake::launch(fake::kernel<6>("rung"), 1, stream, params);
  };
  constexpr auto kNone = [](const RungParams&) { return size_t{0}; };
  static const Rung table[] = {
      {"00_unfused", "", "", RungInput::fp16, 80, 0, unfused_workspace_bytes, kLaunch},
      {"12_mma_sync", "", "", RungInput::fp16, 80, 0, kNone, kLaunch},
      {"13_fp8_stage_c", "", "", RungInput::fp8_e4m3, 80, 0, kNone, kLaunch},
      {"14_fp8_native", "", "", RungInput::fp8_e4m3, 89, 0, kNone, kLaunch},
      {"15_wgmma_tma", "", "", RungInput::fp16, 90, 90, kNone, kLaunch}};
  return table;
}

cudaError_t probe_wmma_layout(bool* matches) {
  *matches = true;
  return cudaSuccess;
}

}  // namespace ladder
}  // namespace flashcore::cuda
