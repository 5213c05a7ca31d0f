// cuDNN's fused attention from C++: builds the graph of cudnn_attention.hpp, takes the plan that
// cuDNN's heuristics rank first, and binds the memory and scalars of a problem.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/device/cuda_error.hpp"
#include "bench/peers/cudnn_attention.hpp"
#include "bench/peers/cudnn_graph.hpp"
#include "bench/peers/native_peer.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

// The resources that a call owns.
struct Prepared {
  CudnnDescriptor plan;
  CudnnDescriptor pack;
  void* workspace = nullptr;
  void* numbers = nullptr;  // device memory, for fp8
  float scale = 0;
  float hidden = std::numeric_limits<float>::lowest();
  int32_t seqlen_q = 0, seqlen_kv = 0;

  Prepared(CudnnDescriptor made, const CudnnLibrary& cudnn)
      : plan(std::move(made)),
        pack(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the pointers of a run") {}
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    for (void* const memory : {workspace, numbers}) {
      if (memory != nullptr) (void)cudaFree(memory);
    }
  }
};

// The memory and scalars of a run, by their ids.
struct Bindings {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;

  void add(int64_t id, const void* pointer) {
    ids.push_back(id);
    pointers.push_back(pointer);
  }
};

// O is stored divided by this number.
Result<float> output_scale(const Problem& problem, const Arguments& arguments) {
  float scale = 1;
  if (!problem.o_scale) return scale;
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaMemcpy(&scale, arguments.o_scale, sizeof scale, cudaMemcpyDeviceToHost),
                  "reading o_scale"));
  return scale;
}

// Binds the scalars of fp8, in device memory.
Status bind_numbers(Prepared& prepared, const std::vector<CudnnNumber>& numbers,
                    Bindings& bindings) {
  constexpr size_t kStep = 4;  // aligns every scalar like a tensor
  std::vector<float> values(kStep * numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) values[kStep * i] = numbers[i].value;
  const size_t bytes = values.size() * sizeof(float);
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaMalloc(&prepared.numbers, bytes), fmt::format("allocating {} bytes", bytes)));
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaMemcpy(prepared.numbers, values.data(), bytes, cudaMemcpyHostToDevice),
                  "copying the scales"));
  for (size_t i = 0; i < numbers.size(); ++i) {
    bindings.add(numbers[i].id, static_cast<const float*>(prepared.numbers) + kStep * i);
  }
  return {};
}

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
    FLASHCORE_RETURN_IF_ERROR(cudnn_takes(problem));
    CudnnGraph graph(cudnn_);
    add_cudnn_attention(graph, problem);
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
    Bindings bindings;
    bindings.add(cudnn_id::kQ, arguments.q);
    bindings.add(cudnn_id::kK, arguments.k);
    bindings.add(cudnn_id::kV, arguments.v);
    bindings.add(cudnn_id::kO, arguments.o);
    bindings.add(cudnn_id::kScale, &prepared.scale);
    if (is_masked(problem)) bindings.add(cudnn_id::kHidden, &prepared.hidden);
    if (is_shifted(problem)) {
      prepared.seqlen_q = static_cast<int32_t>(problem.q.shape[2]);
      prepared.seqlen_kv = static_cast<int32_t>(problem.k.shape[2]);
      bindings.add(cudnn_id::kSeqlenQ, &prepared.seqlen_q);
      bindings.add(cudnn_id::kSeqlenKv, &prepared.seqlen_kv);
    }
    if (problem.q.dtype == DType::f8e4m3) {
      const Result<float> o_scale = output_scale(problem, arguments);
      if (!o_scale.ok()) return o_scale.status();
      FLASHCORE_RETURN_IF_ERROR(bind_numbers(prepared, cudnn_fp8_numbers(*o_scale), bindings));
    }
    prepared.pack
        .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
             std::span<const int64_t>(bindings.ids))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::span<const void* const>(bindings.pointers))
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
