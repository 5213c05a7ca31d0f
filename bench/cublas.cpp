#include "bench/cublas.hpp"

#include <dlfcn.h>
#include <library_types.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cuda_error.hpp"

namespace flashcore::bench {
namespace {

namespace fs = std::filesystem;

// Of the library's C interface, as its manual gives it.
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

// Folders of NVIDIA's packages in the python3 that PATH leads to.
void append_python_folders(std::vector<fs::path>& folders) {
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const size_t end = rest.find(':');
    const fs::path bin = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    std::error_code error;
    if (!fs::exists(bin / "python3", error)) continue;
    for (const auto& version : fs::directory_iterator(bin.parent_path() / "lib", error)) {
      for (const auto& package :
           fs::directory_iterator(version.path() / "site-packages" / "nvidia", error)) {
        folders.push_back(package.path() / "lib");
      }
    }
    return;
  }
}

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  if (const char* chosen = std::getenv("FLASHCORE_CUBLAS"); chosen != nullptr) {
    paths.emplace_back(chosen);
  }
  for (const char* name : kNames) paths.emplace_back(name);
  std::vector<fs::path> folders = {"/usr/local/cuda/lib64"};
  append_python_folders(folders);
  for (const fs::path& folder : folders) {
    for (const char* name : kNames) {
      std::error_code error;
      if (fs::exists(folder / name, error)) paths.push_back((folder / name).string());
    }
  }
  return paths;
}

template <class Function>
Function find(void* shared_object, const char* name) {
  return reinterpret_cast<Function>(dlsym(shared_object, name));
}

Status cublas_status(int code, std::string_view doing) {
  if (code == 0) return {};
  return {StatusCode::device_error, fmt::format("cublas: {} failed with status {}", doing, code)};
}

}  // namespace

Result<Cublas> Cublas::open(cudaStream_t stream) {
  Cublas cublas;
  for (const std::string& path : candidates()) {
    cublas.shared_object_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (cublas.shared_object_ == nullptr) continue;
    cublas.library_ = path;
    if (Status status = cublas.bind(stream); !status.ok()) return status;
    return cublas;
  }
  return unsupported(
      "cublas: libcublas was not found, so there is no matrix product to compare with; "
      "FLASHCORE_CUBLAS can name it");
}

Status Cublas::bind(cudaStream_t stream) {
  const auto create = find<Create>(shared_object_, "cublasCreate_v2");
  const auto set_stream = find<SetStream>(shared_object_, "cublasSetStream_v2");
  const auto set_workspace = find<SetWorkspace>(shared_object_, "cublasSetWorkspace_v2");
  const auto get_version = find<GetVersion>(shared_object_, "cublasGetVersion_v2");
  multiply_ = dlsym(shared_object_, "cublasGemmEx");
  if (create == nullptr || set_stream == nullptr || set_workspace == nullptr ||
      get_version == nullptr || multiply_ == nullptr) {
    return unsupported("cublas: {} lacks functions of its interface", library_);
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
      shared_object_(std::exchange(other.shared_object_, nullptr)),
      handle_(std::exchange(other.handle_, nullptr)),
      workspace_(std::exchange(other.workspace_, nullptr)),
      multiply_(other.multiply_) {}

// The library stays loaded: it keeps state of its own in the CUDA runtime.
Cublas::~Cublas() {
  if (handle_ != nullptr) (void)find<Destroy>(shared_object_, "cublasDestroy_v2")(handle_);
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
