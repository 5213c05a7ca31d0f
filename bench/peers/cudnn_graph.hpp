// The part of cuDNN's graph interface that attention needs: descriptors that free themselves, and a
// graph that is built operation by operation.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/process/shared_library.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// cuDNN's functions, looked up at run time.
struct CudnnLibrary {
  static Result<CudnnLibrary> open();

  SharedLibrary library;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // "cudnn: <doing>: CUDNN_STATUS_NOT_SUPPORTED: <its own words>"
  Status status(cudnnStatus_t code, const std::string& doing) const;

  // Returns and clears cuDNN's recorded reason why its heuristics found no engine: its first sentence.
  std::string reason() const;
};

// One descriptor. The first error is kept, and later calls do nothing.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& cudnn, cudnnBackendDescriptorType_t type, std::string what);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  ~CudnnDescriptor();

  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       std::span<const T> values) {
    return set_raw(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       const T& value) {
    return set_raw(name, type, 1, &value);
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw_);
  }
  Status finalize();

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  CudnnDescriptor& set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           int64_t count, const void* values);

  const CudnnLibrary* cudnn_;
  std::string what_;
  cudnnBackendDescriptor_t raw_ = nullptr;
  Status status_;
};

// Operations over four-dimensional tensors, added in execution order. The first error is kept and
// stops the construction; `build` reports it.
class CudnnGraph {
 public:
  using Dims = std::array<int64_t, 4>;
  using Tensor = const CudnnDescriptor*;

  explicit CudnnGraph(const CudnnLibrary& cudnn) : cudnn_(&cudnn) {}

  // Memory that a run binds to this id.
  Tensor memory(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides);
  // A scalar whose host address a run binds to this id.
  Tensor scalar(int64_t id, cudnnDataType_t type);

  Tensor product(Tensor a, Tensor b, const Dims& dims);  // virtual tensor
  void product_into(Tensor a, Tensor b, Tensor c);       // writes memory
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, const Dims& dims,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT);
  void pointwise_into(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);  // writes memory
  Tensor index(Tensor x, int64_t axis, const Dims& dims);
  Tensor select(Tensor where, Tensor x, Tensor otherwise, const Dims& dims);
  Tensor reduce(cudnnReduceTensorOp_t operation, Tensor x, const Dims& dims);
  void reduce_into(cudnnReduceTensorOp_t operation, Tensor x, Tensor y);  // writes memory

  // Builds the graph as a plan of the first engine in cuDNN's ranking that accepts it.
  Result<CudnnDescriptor> build(cudnnHandle_t handle);

 private:
  Tensor add(CudnnDescriptor descriptor);
  Tensor tensor(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                bool in_memory, bool by_value);
  Tensor unnamed(cudnnDataType_t type, const Dims& dims);
  void operation(CudnnDescriptor descriptor);
  void pointwise_operation(cudnnPointwiseMode_t mode, cudnnDataType_t precision, Tensor x, Tensor b,
                           Tensor y);
  Tensor pointwise_descriptor(cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                              const int64_t* axis);

  const CudnnLibrary* cudnn_;
  std::vector<std::unique_ptr<CudnnDescriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_id_ = 1000;  // ids of virtual tensors
  Status status_;
};

}  // namespace flashcore::bench
