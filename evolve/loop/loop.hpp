// Proposes, stores, evaluates, stores; and goes on where it was, however it ended.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "evolve/evaluate/evaluator.hpp"
#include "evolve/propose/proposer.hpp"
#include "evolve/store/store.hpp"

namespace flashcore::evolve {

// What a run was asked for; kept in the store, so that `resume` needs no words.
struct RunPlan {
  std::string proposer = "params";
  std::string preset = "full";
  int64_t elites = 3;
  int64_t last_attempt = 0;  // 1 is the seed
  double last_second = 0;    // of all runs of the folder together; 0: no limit
  double proposer_seconds = 600;
  bool profiles = false;  // counters of each GPU candidate that wins
};

nlohmann::ordered_json plan_json(const RunPlan& plan);
Result<RunPlan> stored_plan(const Store& store);  // invalid where no run was begun

struct LoopOptions {
  RunPlan plan;
  nlohmann::ordered_json task;
  Program seed;
  std::function<void(const Attempt&)> tell;  // of every attempt that ended; may be empty
};

enum class LoopEnd { attempts, seconds, nothing_left };

// The store's setting "random" is the seed of all choices.
Result<LoopEnd> run_loop(const LoopOptions& options, Store& store, Proposer& proposer,
                         Evaluator& evaluator);

}  // namespace flashcore::evolve
