// Times a candidate in turns with the incumbent, A B A B, and judges a random tenth of
// the timed outputs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "evolve/evaluate/gate_stage.hpp"

namespace flashcore::evolve {

// A timed candidate, and the memory of its calls.
struct Contender {
  Candidate& candidate;
  CallMemory& memory;
};

struct TimedShape {
  CallShape shape{};
  double seconds = 0;            // per call, median over the samples
  double incumbent_seconds = 0;  // 0 without one
  double noise = 0;              // half the interquartile range, relative, of both
  uint64_t calls = 0;            // per sample
};

struct Timed {
  std::vector<TimedShape> shapes;
  double ratio = 1;  // incumbent over candidate: geometric mean
  double noise = 0;
};

// `incumbent` may be null.
Result<Finding> run_timing(const GateContext& candidate, const Contender* incumbent, Timed& timed);

// Refuses a time that is too short for this machine to have done the work.
Finding check_plausible(const Task& task, const Timed& timed);

nlohmann::ordered_json timed_json(const Task& task, const Timed& timed);

}  // namespace flashcore::evolve
