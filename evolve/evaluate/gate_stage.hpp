// Checks that a candidate is right: on the shapes to win on, on hidden shapes, with large scores,
// and with the same bits when it runs again.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "evolve/evaluate/call_memory.hpp"
#include "evolve/evaluate/candidate.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

// Drawn from the secret seed: no extents are known beforehand. The last shape gets large scores,
// and is not small.
std::vector<CallShape> hidden_shapes(const Task& task, bench::Random& secret);

struct GateContext {
  const Task& task;
  Candidate& candidate;
  CallMemory& memory;
  const NormalPool& pool;
  bench::Random& secret;
};

// Adds its measurements to `evidence`.
Result<Finding> run_gates(const GateContext& context, const std::vector<CallShape>& hidden,
                          nlohmann::ordered_json& evidence);

// Runs the same inputs at other locations, with other numbers around them.
Result<Finding> run_repeat(const GateContext& context, const std::vector<CallShape>& hidden);

}  // namespace flashcore::evolve
