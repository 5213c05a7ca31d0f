// Launches, streams and graphs: one queue per host thread, which runs when a thread waits for it.
#include "runtime/launch.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/launch/launch.hpp"
#include "engine/access.hpp"
#include "engine/allocations.hpp"
#include "plan/device.hpp"
#include "runtime/state.hpp"

namespace flashcore::sim {
namespace {

constexpr size_t kSharedWithoutAsking = 48 * 1024;
constexpr uint64_t kCompletions = 3;
constexpr uint8_t kNaN = 0xff, kFinite = 0x4b;

struct Launch {
  LaunchOptions options;
  std::function<void()> body;
};

// The environment's seed, until another is set.
std::atomic<uint64_t>& seed() {
  static std::atomic<uint64_t> one = [] {
    const char* const text = std::getenv("FLASHCORE_SIM_SEED");
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  }();
  return one;
}

// Three completions per order; every other order with finite values in unwritten memory.
Policy policy_of(uint64_t number) {
  const uint64_t order = number / kCompletions;
  return {.completion = static_cast<Completion>(number % kCompletions),
          .seed = order,
          .poison = order % 2 == 0 ? kNaN : kFinite};
}

std::vector<Launch>& queue() {
  thread_local std::vector<Launch> one;
  return one;
}

struct KernelAttributes {
  std::mutex mutex;
  std::map<const void*, int> most_shared;  // bytes that cudaFuncSetAttribute allowed
};
KernelAttributes& attributes() {
  static KernelAttributes one;
  return one;
}

size_t allowed_shared(const void* kernel) {
  KernelAttributes& known = attributes();
  const std::lock_guard lock(known.mutex);
  const auto found = known.most_shared.find(kernel);
  return found == known.most_shared.end() ? kSharedWithoutAsking
                                          : static_cast<size_t>(found->second);
}

// Returns the blocks per SM that shared memory and the number of threads allow.
int blocks_per_sm(unsigned threads, size_t shared_bytes) {
  constexpr size_t kReserved = 1024;  // per block
  constexpr unsigned kMostThreads = 2048;
  const size_t all = shared_limit() + kReserved;  // per SM
  return static_cast<int>(
      std::min<size_t>(kMostThreads / threads, all / (shared_bytes + kReserved)));
}

// Filled in while lists of instances are made.
std::map<const void*, Caller>& callers() {
  static std::map<const void*, Caller> one;
  return one;
}

cudaError_t refuse(cudaError_t error) {
  last_error() = error;
  return error;
}

}  // namespace

cudaError_t& last_error() {
  thread_local cudaError_t one = cudaSuccess;
  return one;
}

std::string& last_findings() {
  thread_local std::string one;
  return one;
}

std::mutex& machine_mutex() {
  static std::mutex one;
  return one;
}

cudaError_t run_queue() {
  if (queue().empty()) return cudaSuccess;
  const std::vector<Launch> launches = std::exchange(queue(), {});
  const std::lock_guard lock(machine_mutex());
  Simulator simulator(policy_of(seed()));
  for (const Launch& launch : launches) simulator.launch(launch.options, launch.body);
  simulator.synchronize();
  if (simulator.findings().empty()) return cudaSuccess;
  last_findings() = simulator.findings().text();
  return refuse(cudaErrorLaunchFailure);
}

cudaError_t enqueue(const void* kernel, const LaunchOptions& options, std::function<void()> body,
                    cudaStream_t stream) {
  const uint64_t blocks = uint64_t{options.grid.x} * options.grid.y * options.grid.z;
  const unsigned threads = options.block.x * options.block.y * options.block.z;
  if (blocks == 0 || threads == 0 || threads > 1024 ||
      blocks % static_cast<uint64_t>(options.cluster_blocks) != 0 || options.grid.y > 65535 ||
      options.grid.z > 65535) {
    return refuse(cudaErrorInvalidConfiguration);
  }
  if (options.shared_bytes > std::min(allowed_shared(kernel), shared_limit())) {
    return refuse(cudaErrorInvalidValue);
  }
  Launch launch{options, std::move(body)};
  launch.options.shared_limit = shared_limit();
  if (stream != nullptr && stream->captures) {
    stream->captured.push_back([launch = std::move(launch)] { queue().push_back(launch); });
    return cudaSuccess;
  }
  // A launch that does not start early follows all earlier ones.
  if (!options.starts_early) {
    if (const cudaError_t error = run_queue(); error != cudaSuccess) return error;
  }
  queue().push_back(std::move(launch));
  return cudaSuccess;
}

void learn_kernel(const void* kernel, Caller caller) { callers()[kernel] = std::move(caller); }

}  // namespace flashcore::sim

namespace flashcore::cuda::launch {

cudaError_t start_blocks(const Kernel& kernel, const Grid& grid, unsigned int threads,
                         void** arguments, cudaStream_t stream) {
  const Instance& instance = *kernel.instance;
  const sim::LaunchOptions options{
      .grid = {grid.blocks.x, grid.blocks.y, grid.blocks.z},
      .block = {threads},
      .shared_bytes = instance.shape.shared_bytes + grid.shared_bytes,
      .cluster_blocks = static_cast<int>(instance.shape.cluster),
      .registers = sim::first_registers(threads, instance.shape.blocks_per_sm),
      .starts_early = grid.early};
  return sim::enqueue(instance.function, options, sim::callers().at(instance.function)(arguments),
                      stream);
}

}  // namespace flashcore::cuda::launch

namespace flashcore {

std::optional<uint64_t> simulator_seed() { return sim::seed(); }
void seed_simulator(uint64_t number) { sim::seed() = number; }

}  // namespace flashcore

using flashcore::sim::run_queue;

cudaError_t cudaDeviceSynchronize() { return run_queue(); }

// --- streams and graphs ---

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = run_queue();
  delete stream;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr && stream->captures) return cudaErrorInvalidValue;
  return run_queue();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (stream == nullptr || stream->captures) return cudaErrorInvalidValue;
  stream->captures = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || !stream->captures) return cudaErrorInvalidValue;
  stream->captures = false;
  *graph = new CUgraph_st{std::exchange(stream->captured, {})};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *made = new CUgraphExec_st{graph->launches};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t /*stream*/) {
  for (const auto& launch : graph->launches) {
    launch();
    if (const cudaError_t error = run_queue(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

// --- kernels ---

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > static_cast<int>(flashcore::sim::shared_limit())) {
    return flashcore::sim::refuse(cudaErrorInvalidValue);
  }
  flashcore::sim::KernelAttributes& known = flashcore::sim::attributes();
  const std::lock_guard lock(known.mutex);
  known.most_shared[kernel] = value;
  return cudaSuccess;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* kernel) {
  *function = static_cast<cudaFunction_t>(const_cast<void*>(kernel));
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*kernel*/) {
  *attributes = {};
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t shared_bytes) {
  const size_t most =
      std::min(flashcore::sim::allowed_shared(kernel), flashcore::sim::shared_limit());
  const bool fits = threads > 0 && threads <= 1024 && shared_bytes <= most;
  *blocks = fits ? flashcore::sim::blocks_per_sm(static_cast<unsigned>(threads), shared_bytes) : 0;
  return cudaSuccess;
}
