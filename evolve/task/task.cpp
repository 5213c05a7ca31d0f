#include "evolve/task/task.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "bench/evidence/schema.hpp"
#include "bench/gate/gates.hpp"
#include "bench/time/cpu_peak.hpp"
#include "evolve/task/schemas.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSemantics =
    "O = softmax(scale * Q K^T) V for each batch entry and head, and the natural logarithm of each "
    "row's sum of exponentials in lse. Tensors are contiguous f32: q and o [batch, heads_q, "
    "seqlen_q, head_dim], k and v [batch, heads_kv, seqlen_kv, head_dim], lse [batch, heads_q, "
    "seqlen_q]. Query head h reads key head h / (heads_q / heads_kv). Every element of o and lse "
    "is "
    "written. Any extent but head_dim may differ from that of the shapes to win on, scores may be "
    "large, and pointers are multiples of 64 bytes.";
constexpr const char* kCausal =
    " Query i sees the keys up to i + seqlen_kv - seqlen_q; a row that sees no key has O 0 and lse "
    "-infinity.";

Status check(const Json& json, const char* schema) {
  return bench::check_schema(json, Json::parse(schema), Json::object());
}

Json shape_json(const CallShape& s) {
  return {{"batch", s.batch},       {"heads_q", s.heads_q},     {"heads_kv", s.heads_kv},
          {"seqlen_q", s.seqlen_q}, {"seqlen_kv", s.seqlen_kv}, {"head_dim", s.head_dim}};
}

// What the gates hold f32 to. A proposer is told; task.json does not change it.
Json gates_json() {
  const bench::GateLimits limits = bench::gate_limits(DType::f32);
  return {{"max_scaled_error", limits.max_scaled_error},
          {"relative_error", limits.relative_error},
          {"lse_error", limits.lse_error},
          {"judged",
           "the shapes to win on, shapes that are not told, large scores; a second run "
           "has the same bits"}};
}

}  // namespace

Problem problem_of(const CallShape& s, bool causal) {
  Problem problem;
  problem.q = problem.o =
      TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q, s.head_dim});
  problem.k = problem.v =
      TensorDesc::contiguous(DType::f32, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim});
  problem.lse = TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  problem.causal = causal;
  problem.softmax_scale = s.scale;
  return problem;
}

std::string shape_text(const CallShape& s) {
  std::string text = fmt::format("{},{},{},{}", s.batch, s.heads_q, s.seqlen_q, s.head_dim);
  if (s.heads_kv != s.heads_q || s.seqlen_kv != s.seqlen_q) {
    text += fmt::format(" of {} heads and {} keys", s.heads_kv, s.seqlen_kv);
  }
  return text;
}

void describe_machine(Task& task) {
  const bool is_c = task.language == "c";
  task.compiler = {is_c ? "gcc" : "g++", is_c ? "-std=gnu11" : "-std=gnu++20", "-O3",
                   "-march=native"};
  if (!is_c) task.compiler.insert(task.compiler.end(), {"-fno-exceptions", "-fno-rtti"});
  const DeviceInfo cpu = devices().front();
  const bench::CpuPeak peak = bench::measure_cpu_peak(1, 0.2, true);
  task.peak_flop_a_second = peak.flop_a_second;
  task.device = {
      {"kind", "cpu"}, {"name", cpu.name},  {"instructions", build_info().cpu_target},
      {"threads", 1},  {"peak", peak.what}, {"peak_flop_a_second", std::round(peak.flop_a_second)}};
}

Json task_json(const Task& task) {
  Json shapes = Json::array();
  for (const CallShape& shape : task.shapes) shapes.push_back(shape_json(shape));
  return {
      {"schema", "flashcore-evolve-task"},
      {"version", kTaskVersion},
      {"semantics", std::string(kSemantics) + (task.causal ? kCausal : "")},
      {"signature", kSignature},
      {"language", task.language},
      {"causal", task.causal},
      {"shapes", shapes},
      {"gates", gates_json()},
      {"device", task.device},
      {"compiler", task.compiler},
      {"budgets",
       {{"source_bytes", task.budgets.source_bytes},
        {"object_bytes", task.budgets.object_bytes},
        {"memory_mib", task.budgets.memory_mib},
        {"compile_seconds", task.budgets.compile_seconds},
        {"call_seconds", task.budgets.call_seconds}}},
      {"timing", {{"sample_seconds", task.timing.sample_seconds}, {"rounds", task.timing.rounds}}}};
}

Result<Task> task_from(const Json& json) {
  FLASHCORE_RETURN_IF_ERROR(check_task(json));
  Task task;
  task.language = json["language"];
  task.causal = json["causal"];
  for (const Json& s : json["shapes"]) {
    const CallShape shape{s["batch"],
                          s["heads_q"],
                          s["heads_kv"],
                          s["seqlen_q"],
                          s["seqlen_kv"],
                          s["head_dim"],
                          static_cast<float>(1 / std::sqrt(s["head_dim"].get<double>()))};
    if (shape.heads_q % shape.heads_kv != 0) {
      return invalid("shapes: {} key heads, wanted a divisor of {}", shape.heads_kv, shape.heads_q);
    }
    task.shapes.push_back(shape);
  }
  if (task.shapes.empty()) return invalid("shapes: there are none, wanted one or more");
  for (const CallShape& shape : task.shapes) {
    if (shape.head_dim != task.shapes.front().head_dim) {
      return invalid("shapes: head dimensions {} and {}, wanted one", task.shapes.front().head_dim,
                     shape.head_dim);
    }
  }
  task.compiler = json["compiler"].get<std::vector<std::string>>();
  if (task.compiler.empty()) return invalid("compiler: is empty, wanted a program and its options");
  const Json& budgets = json["budgets"];
  task.budgets = {budgets["source_bytes"], budgets["object_bytes"], budgets["memory_mib"],
                  budgets["compile_seconds"], budgets["call_seconds"]};
  task.timing = {json["timing"]["sample_seconds"], json["timing"]["rounds"]};
  task.device = json["device"];
  task.peak_flop_a_second = task.device["peak_flop_a_second"];
  return task;
}

Status check_task(const Json& json) { return check(json, kTaskSchema); }
Status check_request(const Json& json) { return check(json, kRequestSchema); }
Status check_proposal(const Json& json) { return check(json, kProposalSchema); }

}  // namespace flashcore::evolve
