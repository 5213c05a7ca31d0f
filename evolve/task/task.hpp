// What is to be made fast: task.json of a run's folder, which is also what a proposer is told.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "evolve/runner/commands.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

inline constexpr int kTaskVersion = 1;
inline constexpr const char* kSignature =
    "void attention(const float* q, const float* k, const float* v, float* o, float* lse,\n"
    "               int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seqlen_q,\n"
    "               int64_t seqlen_kv, int64_t head_dim, float scale)";

// Past one of them an attempt has the outcome `resources` or `timeout`.
struct Budgets {
  int64_t source_bytes = 256 << 10;
  int64_t object_bytes = 1 << 20;
  int64_t memory_mib = 256;     // of the candidate's own, besides tensors
  double compile_seconds = 20;  // wall
  double call_seconds = 10;     // wall, of one command
};

struct TimingRules {
  double sample_seconds = 5e-3;  // least length of a sample
  int64_t rounds = 5;            // samples of each, in turns with the incumbent
};

struct Task {
  std::string language;           // "c" or "c++"
  std::vector<CallShape> shapes;  // to win on; all of one head dimension
  bool causal = false;            // bottom right
  std::vector<std::string> compiler;
  Budgets budgets;
  TimingRules timing;
  nlohmann::ordered_json device;  // facts: name, features, threads
  double peak_flop_a_second = 0;  // of one thread, measured
};

// One shape as Problem: contiguous, f32, with LSE.
Problem problem_of(const CallShape& shape, bool causal);

// "1,8,512,64", with heads and rows of k and v where they differ.
std::string shape_text(const CallShape& shape);

// The default compiler, facts and ceiling of this machine.
void describe_machine(Task& task);

nlohmann::ordered_json task_json(const Task& task);
Result<Task> task_from(const nlohmann::ordered_json& json);

// The schemas of docs/evolve: task.schema.json, request.schema.json and proposal.schema.json.
Status check_task(const nlohmann::ordered_json& json);
Status check_request(const nlohmann::ordered_json& json);
Status check_proposal(const nlohmann::ordered_json& json);

}  // namespace flashcore::evolve
