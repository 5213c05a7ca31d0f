#include "bench/time/cuda_ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bench/device/cuda_error.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "bench/time/cublas.hpp"
#include "bench/time/probe_kernels.hpp"

namespace flashcore::bench {
namespace {

constexpr int kMatrixSize = 8192;
constexpr size_t kCopyBytes = size_t{1} << 30;

class DeviceBuffer {
 public:
  static Result<DeviceBuffer> allocate(size_t bytes) {
    DeviceBuffer buffer;
    FLASHCORE_RETURN_IF_ERROR(
        cuda_status(cudaMalloc(&buffer.data_, bytes), fmt::format("allocating {} bytes", bytes)));
    return buffer;
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  DeviceBuffer() = default;
  void* data_ = nullptr;
};

// N(0, 1): one drawn piece, copied until the buffer is full. The piece's length is no divisor of a
// row's, so that no two rows of a matrix are equal in place.
Status fill_normal(std::byte* data, size_t bytes, DType dtype, uint64_t seed) {
  constexpr int64_t kElements = (1 << 20) + 8;
  HostTensor piece(TensorDesc::contiguous(dtype, {kElements}));
  Random random(seed);
  piece.fill([&] { return random.normal(); });
  const size_t piece_bytes = static_cast<size_t>(kElements) * size_of(dtype);
  for (size_t at = 0; at < bytes; at += piece_bytes) {
    FLASHCORE_RETURN_IF_ERROR(
        cuda_status(cudaMemcpy(data + at, piece.data(), std::min(piece_bytes, bytes - at),
                               cudaMemcpyHostToDevice),
                    "filling a matrix"));
  }
  return {};
}

}  // namespace

Result<MatrixProduct> time_matrix_product(CudaTimer& timer, DType dtype,
                                          const CudaProtocol& protocol) {
  const Result<Cublas> cublas = Cublas::open(timer.stream());
  if (!cublas.ok()) return cublas.status();
  const size_t bytes = size_t{kMatrixSize} * kMatrixSize * size_of(dtype);
  const Result<DeviceBuffer> a = DeviceBuffer::allocate(bytes);
  if (!a.ok()) return a.status();
  const Result<DeviceBuffer> b = DeviceBuffer::allocate(bytes);
  if (!b.ok()) return b.status();
  const Result<DeviceBuffer> c = DeviceBuffer::allocate(bytes);
  if (!c.ok()) return c.status();
  FLASHCORE_RETURN_IF_ERROR(fill_normal(a->data(), bytes, dtype, 1));
  FLASHCORE_RETURN_IF_ERROR(fill_normal(b->data(), bytes, dtype, 2));
  const Result<Timing> timing = timer.time(
      [&](Stream) { return cublas->multiply(dtype, kMatrixSize, a->data(), b->data(), c->data()); },
      protocol);
  if (!timing.ok()) return timing.status();
  const double n = kMatrixSize;
  return MatrixProduct{
      .n = kMatrixSize,
      .flop_a_second = 2 * n * n * n / timing->p50,
      .library = fmt::format("{}, version {}",
                             std::filesystem::path(cublas->library()).filename().string(),
                             cublas->version()),
      .timing = *timing};
}

Result<Copy> time_copy(CudaTimer& timer, const CudaProtocol& protocol) {
  const Result<DeviceBuffer> from = DeviceBuffer::allocate(kCopyBytes);
  if (!from.ok()) return from.status();
  const Result<DeviceBuffer> to = DeviceBuffer::allocate(kCopyBytes);
  if (!to.ok()) return to.status();
  const Result<Timing> timing = timer.time(
      [&](Stream stream) {
        return cuda_status(launch_copy_kernel(to->data(), from->data(), kCopyBytes,
                                              static_cast<cudaStream_t>(stream.handle)),
                           "a copy");
      },
      protocol);
  if (!timing.ok()) return timing.status();
  return Copy{.bytes_a_second = 2 * static_cast<double>(kCopyBytes) / timing->p50,
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
    ceilings["copy_bytes_a_second"] = copy->bytes_a_second;
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
        {"tflops", product->flop_a_second * 1e-12},
        {"n", product->n},
        {"library", product->library}};
  }
  return ceilings;
}

}  // namespace flashcore::bench
