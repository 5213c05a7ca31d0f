// Stubs for GPUs and their kernels in a build without CUDA.
#include "plan/cuda_calls.hpp"
#include "plan/cuda_kernels.hpp"
#include "plan/device.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

// The status of every GPU call in this build.
Status no_gpu() { return unsupported("device: is a GPU, wanted the CPU in a build without CUDA"); }

}  // namespace

std::vector<DeviceInfo> cuda_devices() { return {}; }
tuning::DeviceSpeed device_speed(const DeviceInfo& /*device*/) { return {}; }
std::optional<uint64_t> simulator_seed() { return std::nullopt; }
void seed_simulator(uint64_t /*seed*/) {}
std::vector<Variant> cuda_variants() { return {}; }

Status run_on_gpu(const MergeProblem& /*problem*/, const MergeArguments& /*arguments*/,
                  const DeviceInfo& /*device*/, Stream /*stream*/) {
  return no_gpu();
}
Status run_on_gpu(const AppendProblem& /*problem*/, const AppendArguments& /*arguments*/,
                  const DeviceInfo& /*device*/, Stream /*stream*/) {
  return no_gpu();
}
Status run_on_gpu(const QuantizeProblem& /*problem*/, const QuantizeArguments& /*arguments*/,
                  const DeviceInfo& /*device*/, Stream /*stream*/) {
  return no_gpu();
}
Status run_on_gpu(const TransposeProblem& /*problem*/, const void* /*v*/, void* /*v_out*/,
                  const DeviceInfo& /*device*/, Stream /*stream*/) {
  return no_gpu();
}

}  // namespace flashcore
