// The functions of plans that only `flashcore tune` needs.
#pragma once

#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// The kernels that can run a problem, as PlanOptions::kernel names them; first the choice without a tuning table.
Result<std::vector<std::string>> candidates_of(const Problem& problem, const PlanOptions& options);
Result<std::vector<std::string>> candidates_of(const Problem& problem, const Gradients& gradients,
                                               const PlanOptions& options);

// The problem's key in a table (empty if no table decides it), and the device that plans see.
struct TuningKey {
  std::string text;
  DeviceInfo device;
};
Result<TuningKey> tuning_key(const Problem& problem, const PlanOptions& options);
Result<TuningKey> tuning_key(const Problem& problem, const Gradients& gradients,
                             const PlanOptions& options);

}  // namespace flashcore
