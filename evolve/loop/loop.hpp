// Proposes, stores, evaluates, stores; and resumes where it was, however it ended.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "evolve/evaluate/evaluator.hpp"
#include "evolve/propose/proposer.hpp"
#include "evolve/store/store.hpp"

namespace flashcore::evolve {

// The parameters of a run; stored, so that `resume` needs no arguments.
struct RunPlan {
  std::string proposer = "params";
  std::string preset = "full";
  int64_t elites = 3;
  int64_t last_attempt = 0;  // 1 is the seed
  double last_second = 0;    // over all runs of the folder; 0: no limit
  double proposer_seconds = 600;
  bool profiles = false;  // counters of each winning GPU candidate
};

nlohmann::ordered_json plan_json(const RunPlan& plan);
Result<RunPlan> stored_plan(const Store& store);  // invalid if no run was begun

struct LoopOptions {
  RunPlan plan;
  nlohmann::ordered_json task;
  Program seed;
  std::function<void(const Attempt&)> tell;  // called for every finished attempt; may be empty
};

enum class LoopEnd { attempts, seconds, nothing_left };

// The store's setting "random" is the seed of all random choices.
Result<LoopEnd> run_loop(const LoopOptions& options, Store& store, Proposer& proposer,
                         Evaluator& evaluator);

}  // namespace flashcore::evolve
