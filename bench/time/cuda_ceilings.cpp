#include "bench/time/cuda_ceilings.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/device/cuda_error.hpp"
#include "bench/device/device_memory.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "bench/time/cublas.hpp"
#include "bench/time/probe_kernels.hpp"

namespace flashcore::bench {
namespace {

constexpr int kMatrixSize = 8192;
constexpr size_t kCopyBytes = size_t{1} << 30;

}  // namespace

Result<MatrixProduct> time_matrix_product(CudaTimer& timer, DType dtype,
                                          const CudaProtocol& protocol) {
  const Result<Cublas> cublas = Cublas::open(timer.stream());
  if (!cublas.ok()) return cublas.status();
  const size_t bytes = size_t{kMatrixSize} * kMatrixSize * size_of(dtype);
  const Result<std::unique_ptr<DeviceMemory>> memory = cuda_memory(timer.index());
  if (!memory.ok()) return memory.status();
  // Repeated pieces, like the tensors of a benchmark.
  const TiledInputs inputs(dtype);
  void* matrices[3];
  for (void*& matrix : matrices) {
    const Result<void*> allocated = (*memory)->allocate(bytes);
    if (!allocated.ok()) return allocated.status();
    matrix = *allocated;
  }
  void *const a = matrices[0], *const b = matrices[1], *const c = matrices[2];
  FLASHCORE_RETURN_IF_ERROR((*memory)->copy_tiled(a, bytes, inputs.piece("q")));
  FLASHCORE_RETURN_IF_ERROR((*memory)->copy_tiled(b, bytes, inputs.piece("k")));
  FLASHCORE_RETURN_IF_ERROR((*memory)->synchronise());
  const Result<Timing> timing =
      timer.time([&](Stream) { return cublas->multiply(dtype, kMatrixSize, a, b, c); }, protocol);
  if (!timing.ok()) return timing.status();
  const double n = kMatrixSize;
  return MatrixProduct{
      .n = kMatrixSize,
      .flop_per_second = 2 * n * n * n / timing->p50,
      .library = fmt::format("{}, version {}",
                             std::filesystem::path(cublas->library()).filename().string(),
                             cublas->version()),
      .timing = *timing};
}

Result<Copy> time_copy(CudaTimer& timer, const CudaProtocol& protocol) {
  const Result<std::unique_ptr<DeviceMemory>> memory = cuda_memory(timer.index());
  if (!memory.ok()) return memory.status();
  const Result<void*> from = (*memory)->allocate(kCopyBytes);
  if (!from.ok()) return from.status();
  const Result<void*> to = (*memory)->allocate(kCopyBytes);
  if (!to.ok()) return to.status();
  const Result<Timing> timing = timer.time(
      [&](Stream stream) {
        return cuda_status(
            launch_copy_kernel(*to, *from, kCopyBytes, static_cast<cudaStream_t>(stream.handle)),
            "a copy");
      },
      protocol);
  if (!timing.ok()) return timing.status();
  return Copy{.bytes_per_second = 2 * static_cast<double>(kCopyBytes) / timing->p50,
              .timing = *timing};
}

Result<Timing> time_empty_kernel(CudaTimer& timer, const CudaProtocol& protocol) {
  return timer.time(
      [](Stream stream) {
        return cuda_status(launch_empty_kernel(static_cast<cudaStream_t>(stream.handle)),
                           "an empty kernel");
      },
      protocol);
}

nlohmann::ordered_json cuda_ceilings(CudaTimer& timer, const CudaProtocol& protocol,
                                     const std::set<DType>& dtypes, nlohmann::ordered_json& notes) {
  nlohmann::ordered_json ceilings = nlohmann::ordered_json::object();
  const auto note = [&](const Status& status) { notes.push_back("ceiling: " + status.message()); };
  if (const Result<Timing> empty = time_empty_kernel(timer, protocol); empty.ok()) {
    ceilings["empty_kernel"] = timing_evidence(*empty);
  } else {
    note(empty.status());
  }
  if (const Result<Copy> copy = time_copy(timer, protocol); copy.ok()) {
    ceilings["copy_bytes_per_second"] = copy->bytes_per_second;
  } else {
    note(copy.status());
  }
  ceilings["matrix_product"] = nlohmann::ordered_json::object();
  for (const DType dtype : dtypes) {
    if (dtype != DType::f16 && dtype != DType::bf16) continue;
    const Result<MatrixProduct> product = time_matrix_product(timer, dtype, protocol);
    if (!product.ok()) {
      note(product.status());
      continue;
    }
    ceilings["matrix_product"][std::string(to_string(dtype))] = {
        {"tflops", product->flop_per_second * 1e-12},
        {"n", product->n},
        {"library", product->library}};
  }
  return ceilings;
}

}  // namespace flashcore::bench
