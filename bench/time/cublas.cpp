#include "bench/time/cublas.hpp"

#include <library_types.h>

#include <array>
#include <string_view>
#include <utility>

#include "bench/device/cuda_error.hpp"

namespace flashcore::bench {
namespace {

// The library's C interface, from its manual.
using Create = int (*)(void** handle);
using Destroy = int (*)(void* handle);
using SetStream = int (*)(void* handle, cudaStream_t stream);
using SetWorkspace = int (*)(void* handle, void* workspace, size_t bytes);
using GetVersion = int (*)(void* handle, int* version);
using GemmEx = int (*)(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                       const void* a, cudaDataType_t type_a, int lda, const void* b,
                       cudaDataType_t type_b, int ldb, const void* beta, void* c,
                       cudaDataType_t type_c, int ldc, int compute, int algorithm);
constexpr int kNotTransposed = 0;
constexpr int kComputeF32 = 68;
constexpr int kDefaultAlgorithm = -1;
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr std::array kNames = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};

Status cublas_status(int code, std::string_view doing) {
  if (code == 0) return {};
  return {StatusCode::device_error, fmt::format("cublas: {} failed with status {}", doing, code)};
}

}  // namespace

Result<Cublas> Cublas::open(cudaStream_t stream) {
  Result<SharedLibrary> library = SharedLibrary::open("FLASHCORE_CUBLAS", kNames);
  if (!library.ok()) {
    return unsupported("cublas: {}, so there is no matrix product to compare with",
                       library.status().message());
  }
  Cublas cublas(std::move(*library));
  if (Status status = cublas.bind(stream); !status.ok()) return status;
  return cublas;
}

Status Cublas::bind(cudaStream_t stream) {
  const auto create = library_.find<Create>("cublasCreate_v2");
  const auto set_stream = library_.find<SetStream>("cublasSetStream_v2");
  const auto set_workspace = library_.find<SetWorkspace>("cublasSetWorkspace_v2");
  const auto get_version = library_.find<GetVersion>("cublasGetVersion_v2");
  multiply_ = library_.find<void*>("cublasGemmEx");
  if (create == nullptr || set_stream == nullptr || set_workspace == nullptr ||
      get_version == nullptr || multiply_ == nullptr) {
    return unsupported("cublas: {} lacks functions of its interface", library());
  }
  FLASHCORE_RETURN_IF_ERROR(cublas_status(create(&handle_), "starting"));
  (void)get_version(handle_, &version_);
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaMalloc(&workspace_, kWorkspaceBytes), "allocating a workspace"));
  FLASHCORE_RETURN_IF_ERROR(cublas_status(set_stream(handle_, stream), "setting its stream"));
  return cublas_status(set_workspace(handle_, workspace_, kWorkspaceBytes),
                       "setting its workspace");
}

Cublas::Cublas(Cublas&& other) noexcept
    : library_(std::move(other.library_)),
      version_(other.version_),
      handle_(std::exchange(other.handle_, nullptr)),
      workspace_(std::exchange(other.workspace_, nullptr)),
      multiply_(other.multiply_) {}

Cublas::~Cublas() {
  if (handle_ != nullptr) (void)library_.find<Destroy>("cublasDestroy_v2")(handle_);
  if (workspace_ != nullptr) (void)cudaFree(workspace_);
}

Status Cublas::multiply(DType dtype, int n, const void* a, const void* b, void* c) const {
  const cudaDataType_t type = dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
  const float one = 1, zero = 0;
  const int code = reinterpret_cast<GemmEx>(multiply_)(handle_, kNotTransposed, kNotTransposed, n,
                                                       n, n, &one, a, type, n, b, type, n, &zero, c,
                                                       type, n, kComputeF32, kDefaultAlgorithm);
  return cublas_status(code, "a matrix product");
}

}  // namespace flashcore::bench
