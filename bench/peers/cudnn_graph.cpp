#include "bench/peers/cudnn_graph.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kAlignment = 16;
constexpr int64_t kMostEngines = 16;

CudnnGraph::Dims dense_strides_of(const CudnnGraph::Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

}  // namespace

Result<CudnnLibrary> CudnnLibrary::open() {
  constexpr std::array kNames = {"libcudnn.so.9", "libcudnn.so"};
  Result<SharedLibrary> library = SharedLibrary::open("FLASHCORE_CUDNN", kNames);
  if (!library.ok()) return library.status();
  CudnnLibrary cudnn{.library = std::move(*library)};
  bool complete = true;
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = cudnn.library.find<Function>(name);
    complete = complete && function != nullptr;
  };
  find(cudnn.create, "cudnnCreate");
  find(cudnn.destroy, "cudnnDestroy");
  find(cudnn.set_stream, "cudnnSetStream");
  find(cudnn.version, "cudnnGetVersion");
  find(cudnn.error_string, "cudnnGetErrorString");
  find(cudnn.last_error, "cudnnGetLastErrorString");
  find(cudnn.create_descriptor, "cudnnBackendCreateDescriptor");
  find(cudnn.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(cudnn.set_attribute, "cudnnBackendSetAttribute");
  find(cudnn.get_attribute, "cudnnBackendGetAttribute");
  find(cudnn.finalize, "cudnnBackendFinalize");
  find(cudnn.execute, "cudnnBackendExecute");
  if (!complete) {
    return unsupported("cudnn: {} lacks functions of its graph interface, wanted version 9",
                       cudnn.library.path());
  }
  return cudnn;
}

Status CudnnLibrary::status(cudnnStatus_t code, const std::string& doing) const {
  if (code == CUDNN_STATUS_SUCCESS) return {};
  std::array<char, 256> words{};
  last_error(words.data(), words.size());
  return unsupported("cudnn: {}: {}{}{}", doing, error_string(code), words[0] != 0 ? ": " : "",
                     words.data());
}

std::string CudnnLibrary::reason() const {
  std::array<char, 1024> words{};
  last_error(words.data(), words.size());
  const std::string_view text = words.data();
  constexpr std::string_view kBefore = "Reason: ", kAfter = " at: ";
  const size_t begin = text.find(kBefore);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = text.substr(begin + kBefore.size());
  return std::string(rest.substr(0, std::min(rest.find(kAfter), rest.find('\n'))));
}

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& cudnn, cudnnBackendDescriptorType_t type,
                                 std::string what)
    : cudnn_(&cudnn), what_(std::move(what)) {
  status_ = cudnn.status(cudnn.create_descriptor(type, &raw_), what_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : cudnn_(other.cudnn_),
      what_(std::move(other.what_)),
      raw_(std::exchange(other.raw_, nullptr)),
      status_(std::move(other.status_)) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr) (void)cudnn_->destroy_descriptor(raw_);
}

CudnnDescriptor& CudnnDescriptor::set_raw(cudnnBackendAttributeName_t name,
                                          cudnnBackendAttributeType_t type, int64_t count,
                                          const void* values) {
  if (status_.ok()) {
    status_ = cudnn_->status(cudnn_->set_attribute(raw_, name, type, count, values),
                             fmt::format("{}, attribute {}", what_, static_cast<int>(name)));
  }
  return *this;
}

Status CudnnDescriptor::finalize() {
  if (status_.ok()) status_ = cudnn_->status(cudnn_->finalize(raw_), what_);
  return status_;
}

CudnnGraph::Tensor CudnnGraph::add(CudnnDescriptor descriptor) {
  if (status_.ok()) status_ = descriptor.finalize();
  descriptors_.push_back(std::make_unique<CudnnDescriptor>(std::move(descriptor)));
  return descriptors_.back().get();
}

void CudnnGraph::operation(CudnnDescriptor descriptor) {
  operations_.push_back(add(std::move(descriptor))->raw());
}

CudnnGraph::Tensor CudnnGraph::tensor(int64_t id, cudnnDataType_t type, const Dims& dims,
                                      const Dims& strides, bool in_memory, bool by_value) {
  CudnnDescriptor one(*cudnn_, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
  one.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(dims))
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(strides))
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, !in_memory)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  return add(std::move(one));
}

CudnnGraph::Tensor CudnnGraph::memory(int64_t id, cudnnDataType_t type, const Dims& dims,
                                      const Dims& strides) {
  return tensor(id, type, dims, strides, true, false);
}

CudnnGraph::Tensor CudnnGraph::scalar(int64_t id, cudnnDataType_t type) {
  return tensor(id, type, {1, 1, 1, 1}, {1, 1, 1, 1}, true, true);
}

CudnnGraph::Tensor CudnnGraph::unnamed(cudnnDataType_t type, const Dims& dims) {
  return tensor(next_id_++, type, dims, dense_strides_of(dims), false, false);
}

void CudnnGraph::product_into(Tensor a, Tensor b, Tensor c) {
  CudnnDescriptor how(*cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a matrix product");
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  CudnnDescriptor one(*cudnn_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a matrix product");
  one.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, *add(std::move(how)))
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c);
  operation(std::move(one));
}

CudnnGraph::Tensor CudnnGraph::product(Tensor a, Tensor b, const Dims& dims) {
  const Tensor c = unnamed(CUDNN_DATA_FLOAT, dims);
  product_into(a, b, c);
  return c;
}

CudnnGraph::Tensor CudnnGraph::pointwise_descriptor(cudnnPointwiseMode_t mode,
                                                    cudnnDataType_t precision,
                                                    const int64_t* axis) {
  CudnnDescriptor how(*cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                      fmt::format("pointwise mode {}", static_cast<int>(mode)));
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  if (axis != nullptr) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *axis);
  return add(std::move(how));
}

void CudnnGraph::pointwise_operation(cudnnPointwiseMode_t mode, cudnnDataType_t precision, Tensor x,
                                     Tensor b, Tensor y) {
  const Tensor how = pointwise_descriptor(mode, precision, nullptr);
  CudnnDescriptor one(*cudnn_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                      fmt::format("pointwise operation {}", static_cast<int>(mode)));
  one.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *how)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
  if (b != nullptr) one.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  operation(std::move(one));
}

CudnnGraph::Tensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b,
                                         const Dims& dims, cudnnDataType_t type) {
  const cudnnDataType_t precision =
      type == CUDNN_DATA_BOOLEAN || type == CUDNN_DATA_INT32 ? type : CUDNN_DATA_FLOAT;
  const Tensor y = unnamed(type, dims);
  pointwise_operation(mode, precision, x, b, y);
  return y;
}

void CudnnGraph::pointwise_into(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
  pointwise_operation(mode, CUDNN_DATA_FLOAT, x, b, y);
}

CudnnGraph::Tensor CudnnGraph::index(Tensor x, int64_t axis, const Dims& dims) {
  const Tensor y = unnamed(CUDNN_DATA_INT32, dims);
  const Tensor how = pointwise_descriptor(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, &axis);
  CudnnDescriptor one(*cudnn_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "an index");
  one.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *how)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
  operation(std::move(one));
  return y;
}

CudnnGraph::Tensor CudnnGraph::select(Tensor where, Tensor x, Tensor otherwise, const Dims& dims) {
  const Tensor y = unnamed(CUDNN_DATA_FLOAT, dims);
  const Tensor how = pointwise_descriptor(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, nullptr);
  CudnnDescriptor one(*cudnn_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a selection");
  one.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *how)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *otherwise)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *where)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
  operation(std::move(one));
  return y;
}

void CudnnGraph::reduce_into(cudnnReduceTensorOp_t operation_kind, Tensor x, Tensor y) {
  CudnnDescriptor how(*cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation_kind)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  CudnnDescriptor one(*cudnn_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction");
  one.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, *add(std::move(how)))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y);
  operation(std::move(one));
}

CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t operation_kind, Tensor x,
                                      const Dims& dims) {
  const Tensor y = unnamed(CUDNN_DATA_FLOAT, dims);
  reduce_into(operation_kind, x, y);
  return y;
}

Result<CudnnDescriptor> CudnnGraph::build(cudnnHandle_t handle) {
  FLASHCORE_RETURN_IF_ERROR(status_);
  CudnnDescriptor graph(*cudnn_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "the graph");
  graph
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           std::span<const cudnnBackendDescriptor_t>(operations_))
      .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  FLASHCORE_RETURN_IF_ERROR(graph.finalize());

  CudnnDescriptor heuristics(*cudnn_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "the heuristics");
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  FLASHCORE_RETURN_IF_ERROR(heuristics.finalize());
  std::vector<CudnnDescriptor> engines;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < kMostEngines; ++i) {
    raw.push_back(
        engines.emplace_back(*cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "an engine").raw());
  }
  int64_t count = 0;
  FLASHCORE_RETURN_IF_ERROR(cudnn_->status(
      cudnn_->get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostEngines, &count, raw.data()),
      "the heuristics"));
  const std::string reason = count == 0 ? cudnn_->reason() : "";
  Status last =
      unsupported("cudnn: no engine takes the graph{}{}", reason.empty() ? "" : ": ", reason);
  for (int64_t i = 0; i < std::min(count, kMostEngines); ++i) {
    CudnnDescriptor plan(*cudnn_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "a plan");
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engines[static_cast<size_t>(i)])
        .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
    last = plan.finalize();
    if (last.ok()) return plan;
  }
  return last;
}

}  // namespace flashcore::bench
