// cuBLAS, located at run time: in FLASHCORE_CUBLAS, by the dynamic linker, in the toolkit, or among
// the packages of the python3 on PATH. Nothing links against it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <utility>

#include "bench/process/shared_library.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Square fp16 or bf16 matrix products with fp32 accumulation.
class Cublas {
 public:
  static Result<Cublas> open(cudaStream_t stream);
  Cublas(Cublas&& other) noexcept;
  Cublas& operator=(Cublas&&) = delete;
  ~Cublas();

  const std::string& library() const { return library_.path(); }  // its path
  int version() const { return version_; }

  // c = a * b, all n x n; asynchronous on the stream, and allowed in a capture.
  Status multiply(DType dtype, int n, const void* a, const void* b, void* c) const;

 private:
  explicit Cublas(SharedLibrary library) : library_(std::move(library)) {}
  Status bind(cudaStream_t stream);

  SharedLibrary library_;
  int version_ = 0;
  void* handle_ = nullptr;
  void* workspace_ = nullptr;
  void* multiply_ = nullptr;
};

}  // namespace flashcore::bench
