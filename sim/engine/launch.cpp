#include "engine/launch.hpp"

#include <algorithm>

#include "engine/access.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

constexpr unsigned kRegisterFile = 65536, kMostRegisters = 255, kMostThreads = 1024;

}  // namespace

void Simulator::launch(const LaunchOptions& options, std::function<void()> kernel) {
  if (!options.starts_early) synchronize();
  const unsigned threads = options.block.x * options.block.y * options.block.z;
  if (options.shared_bytes > options.shared_limit) {
    findings_.add(Fault::too_much_shared_memory, Site(), Site(),
                  std::to_string(options.shared_bytes) + " bytes, a block can have " +
                      std::to_string(options.shared_limit));
    return;
  }
  const uint64_t blocks = uint64_t{options.grid.x} * options.grid.y * options.grid.z;
  if (threads == 0 || threads > kMostThreads ||
      blocks % static_cast<uint64_t>(options.cluster_blocks) != 0) {
    findings_.add(Fault::launch_refused, Site(), Site(),
                  std::to_string(threads) + " threads, " + std::to_string(blocks) + " blocks");
    return;
  }
  auto grid = std::make_unique<Grid>();
  grid->dim = options.grid, grid->block = options.block;
  grid->shared_bytes = static_cast<uint32_t>(options.shared_bytes);
  grid->shared_limit = static_cast<uint32_t>(options.shared_limit);
  grid->cluster_blocks = options.cluster_blocks;
  grid->registers =
      options.registers > 0
          ? options.registers
          : static_cast<int>(std::min(kRegisterFile / threads, kMostRegisters) / 8 * 8);
  grid->starts_early = options.starts_early;
  grid->clusters = blocks / static_cast<uint64_t>(options.cluster_blocks);
  grid->body = std::move(kernel);
  queued_.push_back(std::move(grid));
}

void Simulator::synchronize() {
  if (queued_.empty()) return;
  run_grids(std::move(queued_), policy_, findings_);
  queued_.clear();
}

}  // namespace flashcore::sim
