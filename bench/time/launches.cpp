#include "bench/time/launches.hpp"

#include <cudaTypedefs.h>

#include <utility>

#include "bench/device/cuda_error.hpp"
#include "bench/time/captured_graph.hpp"
#include "bench/time/launched.hpp"

namespace flashcore::bench {
namespace {

// The kernels of a captured graph.
Result<std::vector<cudaGraphNode_t>> kernel_nodes(const CapturedGraph& graph) {
  size_t count = 0;
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaGraphGetNodes(graph.graph(), nullptr, &count), "reading a graph"));
  std::vector<cudaGraphNode_t> nodes(count);
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaGraphGetNodes(graph.graph(), nodes.data(), &count), "reading a graph"));
  std::vector<cudaGraphNode_t> kernels;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    FLASHCORE_RETURN_IF_ERROR(
        cuda_status(cudaGraphNodeGetType(node, &type), "reading a graph's node"));
    if (type == cudaGraphNodeTypeKernel) kernels.push_back(node);
  }
  return kernels;
}

template <class Function>
Result<Function> driver_function(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  FLASHCORE_RETURN_IF_ERROR(cuda_status(
      cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found),
      "looking up a function of the driver"));
  if (entry == nullptr)
    return unsupported("driver: has no {}, wanted the driver of CUDA 12.3", name);
  return reinterpret_cast<Function>(entry);
}

// Asks the driver, which knows every launch, through the runtime or not.
Result<std::string> function_name(cudaGraphNode_t node) {
  const auto params_of =
      driver_function<PFN_cuGraphKernelNodeGetParams_v12000>("cuGraphKernelNodeGetParams", 12000);
  const auto of_function = driver_function<PFN_cuFuncGetName_v12030>("cuFuncGetName", 12030);
  const auto of_kernel = driver_function<PFN_cuKernelGetName_v12030>("cuKernelGetName", 12030);
  for (const Status& status : {params_of.status(), of_function.status(), of_kernel.status()}) {
    if (!status.ok()) return status;
  }
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  const char* name = nullptr;
  if ((*params_of)(node, &params) != CUDA_SUCCESS ||
      (params.func != nullptr ? (*of_function)(&name, params.func)
                              : (*of_kernel)(&name, params.kern)) != CUDA_SUCCESS) {
    return Status(StatusCode::device_error,
                  "cuda: the driver has no name of a function in a graph");
  }
  return std::string(name);
}

Result<Launch> launch_of(cudaGraphNode_t node) {
  cudaKernelNodeParams params{};
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaGraphKernelNodeGetParams(node, &params), "reading a kernel's launch"));
  cudaFuncAttributes attributes{};
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaFuncGetAttributes(&attributes, params.func),
                                        "reading a kernel's attributes"));
  Result<std::string> name = function_name(node);
  if (!name.ok()) return name.status();
  Launch launch;
  launch.kernel = std::move(*name);
  launch.blocks = int64_t{params.gridDim.x} * params.gridDim.y * params.gridDim.z;
  launch.threads = int64_t{params.blockDim.x} * params.blockDim.y * params.blockDim.z;
  launch.registers = attributes.numRegs;
  launch.local_bytes = static_cast<int64_t>(attributes.localSizeBytes);
  launch.static_shared = static_cast<int64_t>(attributes.sharedSizeBytes);
  launch.dynamic_shared = params.sharedMemBytes;
  FLASHCORE_RETURN_IF_ERROR(cuda_status(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&launch.blocks_per_multiprocessor, params.func,
                                                    static_cast<int>(launch.threads),
                                                    params.sharedMemBytes),
      "asking for a kernel's occupancy"));
  return launch;
}

}  // namespace

Result<std::vector<Launch>> launches_of(cudaStream_t stream, const TimedCall& call) {
  const Result<CapturedGraph> graph = CapturedGraph::capture(stream, call, 1);
  if (!graph.ok()) return graph.status();
  const Result<std::vector<cudaGraphNode_t>> nodes = kernel_nodes(*graph);
  if (!nodes.ok()) return nodes.status();
  std::vector<Launch> launches;
  for (const cudaGraphNode_t node : *nodes) {
    const Result<Launch> launch = launch_of(node);
    if (!launch.ok()) return launch.status();
    launches.push_back(*launch);
  }
  return launches;
}

Result<std::set<std::string>> launched_by(const TimedCall& call, Device device) {
  std::set<std::string> names;
  if (device.kind != DeviceKind::cuda) return names;
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaSetDevice(device.index), "choosing a GPU"));
  // Not the legacy stream: other work there must not become part of the capture.
  cudaStream_t stream = nullptr;
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
  const Status status = [&]() -> Status {
    const Result<CapturedGraph> graph = CapturedGraph::capture(stream, call, 1);
    if (!graph.ok()) return graph.status();
    const Result<std::vector<cudaGraphNode_t>> nodes = kernel_nodes(*graph);
    if (!nodes.ok()) return nodes.status();
    for (const cudaGraphNode_t node : *nodes) {
      Result<std::string> name = function_name(node);
      if (!name.ok()) return name.status();
      names.insert(std::move(*name));
    }
    return {};
  }();
  (void)cudaStreamDestroy(stream);
  if (!status.ok()) return status;
  return names;
}

}  // namespace flashcore::bench
