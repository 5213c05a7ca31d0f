#include "evolve/evaluate/gate_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "evolve/evaluate/judge.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kJudgedFlop = 1e7;  // per shape to win on: blocks of rows

Json errors_json(const std::string& shape, const bench::Verdict& verdict) {
  return {{"shape", shape},
          {"max_scaled_error", verdict.max_scaled_error},
          {"relative_error", verdict.relative_error},
          {"lse_error", verdict.lse_error}};
}

Finding wrong(const std::string& shape, const std::string& failure) {
  return {Outcome::correctness, fmt::format("{}: {}", shape, failure)};
}

// Integers, so that scores are exact in fp32 and far too large for exp unless the largest
// is subtracted first.
void make_scores_large(bench::HostProblem& host, bench::Random& secret) {
  for (const char* const name : {"q", "k"}) {
    host.at(name).fill([&] { return static_cast<double>(secret.integer(-8, 8)); });
  }
}

// One problem, with all elements judged.
Result<Finding> judge_whole(const GateContext& c, CallShape shape, bool large, Json& evidence) {
  if (large) shape.scale = 1;
  const std::string name =
      large ? "large scores, " + shape_text(shape) : "not told, " + shape_text(shape);
  bench::HostProblem host = bench::make_host_problem(problem_of(shape, c.task), c.secret.bits());
  if (large) make_scores_large(host, c.secret);
  const RunCommand command = c.memory.prepare(shape, 1, c.secret);
  put_inputs(host, c.memory, 0);
  const Ran ran = c.candidate.run(command, c.task.budgets.call_seconds);
  if (!ran.finding.ok()) return ran.finding;
  if (!c.memory.surroundings_intact())
    return wrong(name, "memory outside of the outputs was written");
  take_outputs(c.memory, 0, host);
  // One thread next to a CPU candidate; all of them if the candidate is on the GPU.
  const Result<bench::Reference> reference =
      bench::compute_reference(host, c.task.is_gpu() ? 0 : 1);
  if (!reference.ok()) return reference.status();
  const bench::Verdict verdict = bench::judge(host, *reference);
  evidence.push_back(errors_json(name, verdict));
  return verdict.passed ? Finding{} : wrong(name, verdict.failure);
}

}  // namespace

std::vector<CallShape> hidden_shapes(const Task& task, bench::Random& secret) {
  std::vector<CallShape> shapes;
  const CallShape& told = task.shapes.front();
  const int64_t group = told.heads_q / told.heads_kv;
  // On the GPU they are several tiles long.
  const int64_t longer = task.is_gpu() ? 4 : 1;
  for (const auto& [shortest, longest] :
       {std::pair<int64_t, int64_t>{1, 3}, {1, 40 * longer}, {1, 90 * longer}, {20, 40}}) {
    CallShape shape = told;
    shape.batch = secret.integer(1, 2);
    shape.heads_kv = secret.integer(1, 2);
    shape.heads_q = shape.heads_kv * group;
    shape.seqlen_q = secret.integer(shortest, longest);
    shape.seqlen_kv = secret.integer(task.causal ? shape.seqlen_q : shortest, 2 * longest);
    shapes.push_back(shape);
  }
  return shapes;
}

Result<Finding> run_gates(const GateContext& c, const std::vector<CallShape>& hidden,
                          Json& evidence) {
  evidence = Json::array();
  for (const CallShape& shape : hidden) {
    Result<Finding> found = judge_whole(c, shape, false, evidence);
    if (!found.ok() || !found->ok()) return found;
  }
  Result<Finding> large = judge_whole(c, hidden.back(), true, evidence);
  if (!large.ok() || !large->ok()) return large;
  for (const CallShape& shape : c.task.shapes) {
    const RunCommand command = c.memory.prepare(shape, 1, c.pool, c.secret);
    const Ran ran = c.candidate.run(command, c.task.budgets.call_seconds);
    if (!ran.finding.ok()) return ran.finding;
    const std::string name = shape_text(shape);
    if (!c.memory.surroundings_intact()) {
      return wrong(name, "memory outside of the outputs was written");
    }
    if (c.memory.has_nan()) return wrong(name, "an element was not written, or is NaN");
    const Result<bench::Verdict> verdict =
        judge_rows(c.task, shape, c.memory, 0, kJudgedFlop, c.secret);
    if (!verdict.ok()) return verdict.status();
    evidence.push_back(errors_json(name, *verdict));
    if (!verdict->passed) return wrong(name, verdict->failure);
  }
  return Finding{};
}

Result<Finding> run_repeat(const GateContext& c, const std::vector<CallShape>& hidden) {
  std::vector<CallShape> shapes = hidden;
  shapes.push_back(c.task.shapes.front());
  for (const CallShape& shape : shapes) {
    std::vector<std::byte> q, k, v, o, lse;
    for (const std::byte poison : {std::byte{0xFF}, std::byte{0x3E}, std::byte{0x7F}}) {
      const bool is_first = poison == std::byte{0xFF};
      const RunCommand command = is_first ? c.memory.prepare(shape, 1, c.pool, c.secret)
                                          : c.memory.prepare(shape, 1, c.secret, poison);
      if (is_first) {
        q.assign(c.memory.q(0).begin(), c.memory.q(0).end());
        k.assign(c.memory.k(0).begin(), c.memory.k(0).end());
        v.assign(c.memory.v(0).begin(), c.memory.v(0).end());
      } else {
        std::copy(q.begin(), q.end(), c.memory.q(0).begin());
        std::copy(k.begin(), k.end(), c.memory.k(0).begin());
        std::copy(v.begin(), v.end(), c.memory.v(0).begin());
      }
      const Ran ran = c.candidate.run(command, c.task.budgets.call_seconds);
      if (!ran.finding.ok()) return ran.finding;
      if (is_first) {
        o.assign(c.memory.o(0).begin(), c.memory.o(0).end());
        lse.assign(c.memory.lse(0).begin(), c.memory.lse(0).end());
        continue;
      }
      if (std::memcmp(o.data(), c.memory.o(0).data(), o.size()) != 0 ||
          std::memcmp(lse.data(), c.memory.lse(0).data(), lse.size()) != 0) {
        return wrong(shape_text(shape), "a second run with the same inputs gave other bits");
      }
    }
  }
  return Finding{};
}

}  // namespace flashcore::evolve
