#include "bench/time/launches.hpp"

#include "bench/device/cuda_error.hpp"
#include "bench/time/captured_graph.hpp"

namespace flashcore::bench {
namespace {

Result<Launch> launch_of(cudaGraphNode_t node) {
  cudaKernelNodeParams params{};
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaGraphKernelNodeGetParams(node, &params), "reading a kernel's launch"));
  cudaFuncAttributes attributes{};
  FLASHCORE_RETURN_IF_ERROR(cuda_status(cudaFuncGetAttributes(&attributes, params.func),
                                        "reading a kernel's attributes"));
  const char* name = nullptr;
  (void)cudaFuncGetName(&name, params.func);
  Launch launch;
  launch.kernel = name == nullptr ? "" : name;
  launch.blocks = int64_t{params.gridDim.x} * params.gridDim.y * params.gridDim.z;
  launch.threads = int64_t{params.blockDim.x} * params.blockDim.y * params.blockDim.z;
  launch.registers = attributes.numRegs;
  launch.local_bytes = static_cast<int64_t>(attributes.localSizeBytes);
  launch.static_shared = static_cast<int64_t>(attributes.sharedSizeBytes);
  launch.dynamic_shared = params.sharedMemBytes;
  FLASHCORE_RETURN_IF_ERROR(cuda_status(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&launch.blocks_a_multiprocessor, params.func,
                                                    static_cast<int>(launch.threads),
                                                    params.sharedMemBytes),
      "asking for a kernel's occupancy"));
  return launch;
}

}  // namespace

Result<std::vector<Launch>> launches_of(cudaStream_t stream, const TimedCall& call) {
  const Result<CapturedGraph> graph = CapturedGraph::capture(stream, call, 1);
  if (!graph.ok()) return graph.status();
  size_t count = 0;
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaGraphGetNodes(graph->graph(), nullptr, &count), "reading a graph"));
  std::vector<cudaGraphNode_t> nodes(count);
  FLASHCORE_RETURN_IF_ERROR(
      cuda_status(cudaGraphGetNodes(graph->graph(), nodes.data(), &count), "reading a graph"));
  std::vector<Launch> launches;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    FLASHCORE_RETURN_IF_ERROR(
        cuda_status(cudaGraphNodeGetType(node, &type), "reading a graph's node"));
    if (type != cudaGraphNodeTypeKernel) continue;
    const Result<Launch> launch = launch_of(node);
    if (!launch.ok()) return launch.status();
    launches.push_back(*launch);
  }
  return launches;
}

}  // namespace flashcore::bench
