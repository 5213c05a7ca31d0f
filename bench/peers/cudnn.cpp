// cuDNN's fused attention, asked from C++: the graph of operations that its engines recognise.
//
//   scores = Q K^T * scale -> (keep row + Skv - Sq >= column) -> max, sub, exp, sum, div -> P V = O
//
// Nothing between the products is in memory. The plan is the first that cuDNN's heuristics offer.
#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/device/cuda_error.hpp"
#include "bench/peers/cudnn_graph.hpp"
#include "bench/peers/native_peer.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

// Of the tensors in memory and of the numbers; hidden: the score of a masked pair.
constexpr int64_t kQ = 1, kK = 2, kV = 3, kO = 4, kScale = 5, kHidden = 6, kSeqlenQ = 7,
                  kSeqlenKv = 8;

using Dims = CudnnGraph::Dims;
using Tensor = CudnnGraph::Tensor;

Dims dims_of(const TensorDesc& desc) {
  return {desc.shape[0], desc.shape[1], desc.shape[2], desc.shape[3]};
}

Dims strides_of(const TensorDesc& desc) {
  return {desc.stride[0], desc.stride[1], desc.stride[2], desc.stride[3]};
}

// A single query is the last one, which sees every key.
bool is_masked(const Problem& problem) { return problem.causal && problem.q.shape[2] > 1; }

// Whether the diagonal is not that of a square: the last query sees the last key.
bool is_shifted(const Problem& problem) {
  return is_masked(problem) && problem.q.shape[2] != problem.k.shape[2];
}

void add_attention(CudnnGraph& graph, const Problem& problem, cudnnDataType_t type) {
  Dims keys = dims_of(problem.k), key_strides = strides_of(problem.k);
  std::swap(keys[2], keys[3]);  // K^T of the same memory
  std::swap(key_strides[2], key_strides[3]);
  const Tensor q = graph.memory(kQ, type, dims_of(problem.q), strides_of(problem.q));
  const Tensor k = graph.memory(kK, type, keys, key_strides);
  const Tensor v = graph.memory(kV, type, dims_of(problem.v), strides_of(problem.v));
  const Tensor o = graph.memory(kO, type, dims_of(problem.o), strides_of(problem.o));

  const Dims pairs = {problem.q.shape[0], problem.q.shape[1], problem.q.shape[2],
                      problem.k.shape[2]};
  const Dims rows = {pairs[0], pairs[1], pairs[2], 1};
  Tensor scores = graph.product(q, k, pairs);
  scores =
      graph.pointwise(CUDNN_POINTWISE_MUL, scores, graph.scalar(kScale, CUDNN_DATA_FLOAT), pairs);
  if (is_masked(problem)) {
    Tensor row = graph.index(scores, 2, pairs);
    const Tensor column = graph.index(scores, 3, pairs);
    if (is_shifted(problem)) {  // the engines know the bottom right diagonal by these two steps
      const Tensor seqlen_kv = graph.scalar(kSeqlenKv, CUDNN_DATA_INT32);
      const Tensor seqlen_q = graph.scalar(kSeqlenQ, CUDNN_DATA_INT32);
      row = graph.pointwise(CUDNN_POINTWISE_ADD, row, seqlen_kv, pairs, CUDNN_DATA_INT32);
      row = graph.pointwise(CUDNN_POINTWISE_SUB, row, seqlen_q, pairs, CUDNN_DATA_INT32);
    }
    const Tensor seen =
        graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, pairs, CUDNN_DATA_BOOLEAN);
    scores = graph.select(seen, scores, graph.scalar(kHidden, CUDNN_DATA_FLOAT), pairs);
  }
  const Tensor largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, rows);
  const Tensor below = graph.pointwise(CUDNN_POINTWISE_SUB, scores, largest, pairs);
  const Tensor weights = graph.pointwise(CUDNN_POINTWISE_EXP, below, nullptr, pairs);
  const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, rows);
  // The engines know the softmax by its logarithm too, read or not.
  const Tensor log = graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, rows);
  (void)graph.pointwise(CUDNN_POINTWISE_ADD, largest, log, rows);
  const Tensor p = graph.pointwise(CUDNN_POINTWISE_DIV, weights, sum, pairs, type);
  graph.product_into(p, v, o);
}

// What a call holds on to.
struct Prepared {
  CudnnDescriptor plan;
  CudnnDescriptor pack;
  void* workspace = nullptr;
  float scale = 0;
  float hidden = std::numeric_limits<float>::lowest();
  int32_t seqlen_q = 0, seqlen_kv = 0;

  Prepared(CudnnDescriptor made, const CudnnLibrary& cudnn)
      : plan(std::move(made)),
        pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the pointers of a run") {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    if (workspace != nullptr) (void)cudaFree(workspace);
  }
};

class CudnnPeer final : public NativePeer {
 public:
  explicit CudnnPeer(CudnnLibrary cudnn) : cudnn_(std::move(cudnn)) {}
  ~CudnnPeer() override {
    if (handle_ != nullptr) (void)cudnn_.destroy(handle_);
  }

  Status open() { return cudnn_.status(cudnn_.create(&handle_), "starting"); }

  std::string name() const override { return "cudnn_direct"; }
  std::string version() const override { return fmt::format("cuDNN {}", cudnn_.version()); }

  Result<TimedCall> prepare(const Problem& problem, const Arguments& arguments) override {
    if (problem.q.dtype != DType::f16 && problem.q.dtype != DType::bf16) {
      return unsupported("cudnn: runs f16 and bf16 only here");
    }
    CudnnGraph graph(cudnn_);
    add_attention(graph, problem,
                  problem.q.dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16);
    Result<CudnnDescriptor> plan = graph.build(handle_);
    if (!plan.ok()) return plan.status();
    auto prepared = std::make_shared<Prepared>(std::move(*plan), cudnn_);
    FLASHCORE_RETURN_IF_ERROR(bind(*prepared, problem, arguments));
    return TimedCall([this, prepared](Stream stream) -> Status {
      const cudnnStatus_t set =
          cudnn_.set_stream(handle_, static_cast<cudaStream_t>(stream.handle));
      if (set != CUDNN_STATUS_SUCCESS) return cudnn_.status(set, "setting its stream");
      return cudnn_.status(cudnn_.execute(handle_, prepared->plan.raw(), prepared->pack.raw()),
                           "a run");
    });
  }

 private:
  Status bind(Prepared& prepared, const Problem& problem, const Arguments& arguments) {
    int64_t bytes = 0, count = 0;
    FLASHCORE_RETURN_IF_ERROR(cudnn_.status(
        cudnn_.get_attribute(prepared.plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                             CUDNN_TYPE_INT64, 1, &count, &bytes),
        "a plan's workspace"));
    if (bytes > 0) {
      FLASHCORE_RETURN_IF_ERROR(
          cuda_status(cudaMalloc(&prepared.workspace, static_cast<size_t>(bytes)),
                      fmt::format("allocating {} bytes", bytes)));
    }
    prepared.scale = 1 / std::sqrt(static_cast<float>(problem.q.shape[3]));
    std::vector<int64_t> ids = {kQ, kK, kV, kO, kScale};
    std::vector<const void*> pointers = {arguments.q, arguments.k, arguments.v, arguments.o,
                                         &prepared.scale};
    if (is_masked(problem)) {
      ids.push_back(kHidden);
      pointers.push_back(&prepared.hidden);
    }
    if (is_shifted(problem)) {
      prepared.seqlen_q = static_cast<int32_t>(problem.q.shape[2]);
      prepared.seqlen_kv = static_cast<int32_t>(problem.k.shape[2]);
      ids.insert(ids.end(), {kSeqlenQ, kSeqlenKv});
      pointers.insert(pointers.end(), {&prepared.seqlen_q, &prepared.seqlen_kv});
    }
    prepared.pack
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(ids))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::span<const void* const>(pointers))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, prepared.workspace);
    return prepared.pack.finalize();
  }

  CudnnLibrary cudnn_;
  cudnnHandle_t handle_ = nullptr;
};

}  // namespace

PeerResult make_cudnn_peer(int32_t device_index) {
  Result<CudnnLibrary> cudnn = CudnnLibrary::open();
  if (!cudnn.ok()) return cudnn.status();
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaSetDevice(device_index), "choosing a GPU"));
  auto peer = std::make_unique<CudnnPeer>(std::move(*cudnn));
  FLASHCORE_RETURN_IF_ERROR(peer->open());
  return std::unique_ptr<NativePeer>(std::move(peer));
}

}  // namespace flashcore::bench
