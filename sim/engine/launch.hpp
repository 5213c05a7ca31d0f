// Runs kernels on the simulated GPU.
//
//   Simulator simulator({.completion = Completion::random, .seed = 7});
//   simulator.launch({.grid = {8}, .block = {256}, .shared_bytes = 4096}, [&] { kernel(a, b); });
//   simulator.synchronize();
//   simulator.findings().empty();
//
// One simulator runs at a time in a process, on the thread that calls it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/finding.hpp"
#include "engine/machine.hpp"
#include "engine/policy.hpp"

namespace flashcore::sim {

struct LaunchOptions {
  Index3 grid, block;
  size_t shared_bytes = 0;
  size_t shared_limit = 227 * 1024;  // per block, including static objects
  int cluster_blocks = 1;
  int registers = 0;          // per thread at start; 0: as many as a block can have
  bool starts_early = false;  // the attribute of programmatic stream serialization
};

class Simulator {
 public:
  explicit Simulator(const Policy& policy) : policy_(policy) {}

  // Runs `kernel` once per thread: at the latest in synchronize(),
  // and before the next launch that does not start early.
  void launch(const LaunchOptions& options, std::function<void()> kernel);
  void synchronize();

  const Findings& findings() const { return findings_; }

 private:
  Policy policy_;
  Findings findings_;
  std::vector<std::unique_ptr<Grid>> queued_;
};

}  // namespace flashcore::sim
