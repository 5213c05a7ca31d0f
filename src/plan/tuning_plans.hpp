// What `flashcore tune` asks of plans besides the public interface.
#pragma once

#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// What may run a problem, as PlanOptions::kernel has it; the choice without a tuning table first.
Result<std::vector<std::string>> candidates_of(const Problem& problem, const PlanOptions& options);
Result<std::vector<std::string>> candidates_of(const Problem& problem, const Gradients& gradients,
                                               const PlanOptions& options);

// What a table knows the problem by, empty where none decides it, and the device that plans see.
struct TuningKey {
  std::string text;
  DeviceInfo device;
};
Result<TuningKey> tuning_key(const Problem& problem, const PlanOptions& options);
Result<TuningKey> tuning_key(const Problem& problem, const Gradients& gradients,
                             const PlanOptions& options);

}  // namespace flashcore
