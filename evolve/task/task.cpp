#include "evolve/task/task.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "bench/evidence/schema.hpp"
#include "bench/gate/gates.hpp"
#include "evolve/task/schemas.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSemantics =
    "O = softmax(scale * Q K^T) V for each batch entry and head, and the natural logarithm of each "
    "row's sum of exponentials in lse. Tensors are contiguous: q and o [batch, heads_q, seqlen_q, "
    "head_dim], k and v [batch, heads_kv, seqlen_kv, head_dim], lse (f32) [batch, heads_q, "
    "seqlen_q]. Query head h reads key head h / (heads_q / heads_kv). Every element of o and lse "
    "is written. Any extent but head_dim may differ from that of the shapes to win on, scores may "
    "be large, and pointers are multiples of 64 bytes.";
constexpr const char* kGpuSemantics =
    " The whole is one launch of one kernel, by the lines '//@ launch' of the source: grid, block, "
    "shared (bytes of dynamic shared memory), workspace (bytes, of any content), and 'map k box R, "
    "C swizzle 128' where k is to be a 'const __grid_constant__ CUtensorMap' in place of a "
    "pointer, "
    "of the tensor [batch, heads, rows, columns]. They are expressions of the arguments' names, "
    "multiprocessors, parameters, min, max, ceil_div, and of variables declared extern \"C\" "
    "__constant__ int. HEAD_DIM and CAUSAL (0 or 1) are defined.";
constexpr const char* kCausal =
    " Query i sees the keys up to i + seqlen_kv - seqlen_q; a row that sees no key has O 0 and lse "
    "-infinity.";

constexpr const char* kSignature =
    "void attention(const float* q, const float* k, const float* v, float* o, float* lse,\n"
    "               int64_t batch, int64_t heads_q, int64_t heads_kv, int64_t seqlen_q,\n"
    "               int64_t seqlen_kv, int64_t head_dim, float scale)";
constexpr const char* kGpuSignature =
    "extern \"C\" __global__ void attention(\n"
    "    const {0}* q, const {0}* k, const {0}* v, {0}* o, float* lse, void* workspace,\n"
    "    int batch, int heads_q, int heads_kv, int seqlen_q, int seqlen_kv, int head_dim, "
    "float scale)";

std::string signature_of(const Task& task) {
  if (!task.is_gpu()) return kSignature;
  return fmt::format(fmt::runtime(kGpuSignature),
                     task.dtype == DType::f16 ? "__half" : "__nv_bfloat16");
}

Status check(const Json& json, const char* schema) {
  return bench::check_schema(json, Json::parse(schema), Json::object());
}

Json shape_json(const CallShape& s) {
  return {{"batch", s.batch},       {"heads_q", s.heads_q},     {"heads_kv", s.heads_kv},
          {"seqlen_q", s.seqlen_q}, {"seqlen_kv", s.seqlen_kv}, {"head_dim", s.head_dim}};
}

// The gates for candidates. Proposers see them; task.json does not change them.
Json gates_json(const Task& task) {
  const bench::GateLimits limits = bench::gate_limits(task.dtype);
  return {{"max_scaled_error", limits.max_scaled_error},
          {"relative_error", limits.relative_error},
          {"lse_error", limits.lse_error},
          {"judged",
           "the shapes to win on, shapes that are not told, large scores; a second run "
           "has the same bits"}};
}

}  // namespace

Problem problem_of(const CallShape& s, const Task& task) {
  Problem problem;
  problem.q = problem.o =
      TensorDesc::contiguous(task.dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim});
  problem.k = problem.v =
      TensorDesc::contiguous(task.dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim});
  problem.lse = TensorDesc::contiguous(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  problem.causal = task.causal;
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

Json task_json(const Task& task) {
  Json shapes = Json::array();
  for (const CallShape& shape : task.shapes) shapes.push_back(shape_json(shape));
  return {
      {"schema", "flashcore-evolve-task"},
      {"version", kTaskVersion},
      {"semantics", std::string(kSemantics) + (task.causal ? kCausal : "") +
                        (task.is_gpu() ? kGpuSemantics : "")},
      {"signature", signature_of(task)},
      {"language", task.language},
      {"dtype", to_string(task.dtype)},
      {"causal", task.causal},
      {"shapes", shapes},
      {"gates", gates_json(task)},
      {"device", task.device},
      {"compiler", task.compiler},
      {"budgets",
       {{"source_bytes", task.budgets.source_bytes},
        {"object_bytes", task.budgets.object_bytes},
        {"memory_mib", task.budgets.memory_mib},
        {"spill_bytes", task.budgets.spill_bytes},
        {"compile_seconds", task.budgets.compile_seconds},
        {"call_seconds", task.budgets.call_seconds}}},
      {"timing", {{"sample_seconds", task.timing.sample_seconds}, {"rounds", task.timing.rounds}}}};
}

void use_current_keys(Json& json) {
  bench::rename_members(json, Json::parse(kTaskSchema)["former_keys"]);
}

Result<Task> task_from(const Json& json) {
  FLASHCORE_RETURN_IF_ERROR(check_task(json));
  Task task;
  task.language = json["language"];
  const std::string dtype = json.value("dtype", "f32");
  task.dtype = dtype == "f16" ? DType::f16 : dtype == "bf16" ? DType::bf16 : DType::f32;
  if (task.is_gpu() == (task.dtype == DType::f32)) {
    return invalid("dtype: is {} in a task for {}, wanted f32 on the CPU, f16 or bf16 in CUDA",
                   dtype, task.language);
  }
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
  task.budgets = {budgets["source_bytes"], budgets["object_bytes"],
                  budgets["memory_mib"],   budgets["compile_seconds"],
                  budgets["call_seconds"], budgets.value("spill_bytes", int64_t{256})};
  task.timing = {json["timing"]["sample_seconds"], json["timing"]["rounds"]};
  task.device = json["device"];
  task.peak_flop_per_second = task.device["peak_flop_per_second"];
  task.peak_bytes_per_second = task.device.value("peak_l2_bytes_per_second", 0.0);
  return task;
}

Status check_task(const Json& json) { return check(json, kTaskSchema); }
Status check_request(const Json& json) { return check(json, kRequestSchema); }
Status check_proposal(const Json& json) { return check(json, kProposalSchema); }

}  // namespace flashcore::evolve
