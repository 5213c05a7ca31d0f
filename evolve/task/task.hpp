// The task: task.json of a run's folder, which proposers also get.
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
// An attempt above a limit has the outcome `resources` or `timeout`.
struct Budgets {
  int64_t source_bytes = 256 << 10;
  int64_t object_bytes = 1 << 20;
  int64_t memory_mib = 256;     // candidate's own, without tensors; on the GPU its workspaces
  double compile_seconds = 20;  // wall
  double call_seconds = 10;     // wall, per command
  int64_t spill_bytes = 256;    // GPU only
};

struct TimingRules {
  double sample_seconds = 5e-3;  // minimum length of a sample
  int64_t rounds = 5;            // samples of each candidate, in turns with the incumbent
};

struct Task {
  std::string language;           // "c", "c++" or "cuda"
  DType dtype = DType::f32;       // q, k, v and o; lse is f32
  std::vector<CallShape> shapes;  // shapes to win on, with the same head dimension
  bool causal = false;            // bottom right
  std::vector<std::string> compiler;
  Budgets budgets;
  TimingRules timing;
  nlohmann::ordered_json device;     // facts: name, features, threads
  double peak_flop_per_second = 0;   // one thread's, measured; or a GPU's at its highest clock
  double peak_bytes_per_second = 0;  // L2 bandwidth of a GPU; 0: no limit

  bool is_gpu() const { return language == "cuda"; }
};

// One shape as a Problem: contiguous, with LSE.
Problem problem_of(const CallShape& shape, const Task& task);

// "1,8,512,64", with heads and rows of k and v if they differ.
std::string shape_text(const CallShape& shape);

// Fills in the default compiler, budgets, properties and ceilings of this machine. For a GPU task
// they are `gpu`'s, or by default of this machine's GPU, which `gpu_runner` describes.
Status describe_machine(Task& task, const std::string& gpu_runner,
                        const bench::KnownGpu* gpu = nullptr);

nlohmann::ordered_json task_json(const Task& task);
// Gives members of an older task.json their names of today.
void use_current_keys(nlohmann::ordered_json& json);
Result<Task> task_from(const nlohmann::ordered_json& json);

// The schemas of docs/evolve: task.schema.json, request.schema.json and proposal.schema.json.
Status check_task(const nlohmann::ordered_json& json);
Status check_request(const nlohmann::ordered_json& json);
Status check_proposal(const nlohmann::ordered_json& json);

}  // namespace flashcore::evolve
