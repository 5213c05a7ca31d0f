// A kernel with a plan, inputs drawn from N(0, 1) on its device, and room for its outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bench/device/execution.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "bench/time/timing.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

class PreparedKernel {
 public:
  // fp8 problems get quantised inputs (bench/cases/fp8_problem.hpp).
  static Result<std::unique_ptr<PreparedKernel>> make(const std::string& kernel,
                                                      const Problem& problem, Device device,
                                                      uint64_t seed = 0);

  TimedCall call() const {
    return [this](Stream stream) { return execution_->run(stream); };
  }
  Status finish() { return execution_->fetch(); }  // waits; an error of a call shows here

 private:
  PreparedKernel() = default;
  std::unique_ptr<HostProblem> host_;
  std::unique_ptr<Execution> execution_;
};

}  // namespace flashcore::bench
