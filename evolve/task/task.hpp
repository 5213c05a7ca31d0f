// What is to be made fast: task.json of a run's folder, which is also what a proposer is told.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "evolve/runner/commands.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {
struct KnownGpu;
}

namespace flashcore::evolve {

inline constexpr int kTaskVersion = 1;
// Past one of them an attempt has the outcome `resources` or `timeout`.
struct Budgets {
  int64_t source_bytes = 256 << 10;
  int64_t object_bytes = 1 << 20;
  int64_t memory_mib = 256;  // of the candidate's own, besides tensors; on the GPU its workspaces
  double compile_seconds = 20;  // wall
  double call_seconds = 10;     // wall, of one command
  int64_t spill_bytes = 256;    // on the GPU
};

struct TimingRules {
  double sample_seconds = 5e-3;  // least length of a sample
  int64_t rounds = 5;            // samples of each, in turns with the incumbent
};

struct Task {
  std::string language;           // "c", "c++" or "cuda"
  DType dtype = DType::f32;       // of q, k, v and o; lse is f32
  std::vector<CallShape> shapes;  // to win on; all of one head dimension
  bool causal = false;            // bottom right
  std::vector<std::string> compiler;
  Budgets budgets;
  TimingRules timing;
  nlohmann::ordered_json device;   // facts: name, features, threads
  double peak_flop_a_second = 0;   // of one thread, measured; of a GPU, at its highest clock
  double peak_bytes_a_second = 0;  // of a GPU's L2; 0: no limit

  bool is_gpu() const { return language == "cuda"; }
};

// One shape as Problem: contiguous, with LSE.
Problem problem_of(const CallShape& shape, const Task& task);

// "1,8,512,64", with heads and rows of k and v where they differ.
std::string shape_text(const CallShape& shape);

// The default compiler, budgets, facts and ceilings of this machine. For a task that needs a GPU those of
// `gpu`, or, without it, of the one that is here: `gpu_runner` is our program that asks it.
Status describe_machine(Task& task, const std::string& gpu_runner,
                        const bench::KnownGpu* gpu = nullptr);

nlohmann::ordered_json task_json(const Task& task);
Result<Task> task_from(const nlohmann::ordered_json& json);

// The schemas of docs/evolve: task.schema.json, request.schema.json and proposal.schema.json.
Status check_task(const nlohmann::ordered_json& json);
Status check_request(const nlohmann::ordered_json& json);
Status check_proposal(const nlohmann::ordered_json& json);

}  // namespace flashcore::evolve
