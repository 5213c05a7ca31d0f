#include "evolve/evaluate/cpu_evaluator.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "bench/process/child_process.hpp"
#include "evolve/evaluate/time_stage.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

constexpr uint64_t kMemory = uint64_t{48} << 20;  // for the calls of a sample, about
constexpr uint64_t kCallsToHold = 64;

Result<uint64_t> secret_seed() {
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) == sizeof seed) return seed;
  return Status(StatusCode::internal, "getrandom: has no numbers");
}

// Room for as many calls of the largest shape as fit.
Result<CallMemory> memory_for_timing(const Task& task) {
  double largest = 0;
  for (const CallShape& s : task.shapes) {
    largest = std::max(largest, 8.0 * static_cast<double>(s.head_dim) *
                                    static_cast<double>(s.batch * (s.heads_q * s.seqlen_q +
                                                                   s.heads_kv * s.seqlen_kv)));
  }
  const auto calls = static_cast<uint64_t>(
      std::clamp(static_cast<double>(kMemory) / largest, 1.0, static_cast<double>(kCallsToHold)));
  return CallMemory::make(task.shapes, calls);
}

}  // namespace

struct CpuEvaluator::Attempt {
  Evaluation result;
  std::unique_ptr<Compiled> compiled;
  std::vector<std::string> seeds;
  Timed timed;
};

Result<std::string> find_runner() {
  const Result<std::string> self = bench::this_program();
  if (!self.ok()) return self.status();
  const std::filesystem::path path =
      std::filesystem::path(*self).parent_path() / "flashcore_evolve_runner";
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path.string();
  return unsupported("evolve: there is no {}, wanted it beside the command", path.string());
}

Result<std::unique_ptr<CandidateProcess>> CpuEvaluator::start(const Compiled& compiled,
                                                              const CallMemory& memory,
                                                              Finding& finding) const {
  return CandidateProcess::start(
      {.runner = runner_,
       .folder = compiled.root.path(),
       .object = kObject,
       .memory_bytes = static_cast<uint64_t>(task_.budgets.memory_mib) << 20,
       .load_seconds = task_.budgets.call_seconds,
       .processor_seconds = 100 * task_.budgets.call_seconds},
      memory.inputs(), memory.outputs(), finding);
}

// One process for both; a new one, with new seeds, each time.
Result<Finding> CpuEvaluator::gate(Attempt& attempt) {
  const Result<uint64_t> seed = secret_seed();
  if (!seed.ok()) return seed.status();
  attempt.seeds.push_back(fmt::format("{:016x}", *seed));
  bench::Random secret(*seed);
  const NormalPool pool(secret);
  const std::vector<CallShape> hidden = hidden_shapes(task_, secret);
  std::vector<CallShape> shapes = hidden;
  shapes.insert(shapes.end(), task_.shapes.begin(), task_.shapes.end());
  Result<CallMemory> memory = CallMemory::make(shapes, 1);
  if (!memory.ok()) return memory.status();
  Finding finding;
  const auto process = start(*attempt.compiled, *memory, finding);
  if (!process.ok()) return process.status();
  if (!finding.ok()) return finding;
  attempt.result.evidence["isolation"] = {
      {"network", ((*process)->isolation() & isolated_network) != 0},
      {"files", ((*process)->isolation() & isolated_files) != 0}};
  const GateContext context{task_, **process, *memory, pool, secret};
  Result<Finding> found = run_gates(context, hidden, attempt.result.evidence["gates"]);
  if (!found.ok() || !found->ok()) return found;
  attempt.result.stage = "repeat";
  return run_repeat(context, hidden);
}

Result<const Compiled*> CpuEvaluator::compiled_incumbent(const Program& program) {
  const std::string hash = hash_of(program);
  if (incumbent_hash_ == hash) return incumbent_.get();
  Finding finding;
  Result<std::unique_ptr<Compiled>> compiled = compile(task_, program, runner_, finding);
  if (!compiled.ok()) return compiled.status();
  if (!finding.ok()) return Status(StatusCode::internal, "incumbent: " + finding.sentence);
  incumbent_ = std::move(*compiled);
  incumbent_hash_ = hash;
  return incumbent_.get();
}

Result<Finding> CpuEvaluator::time(Attempt& attempt, const Incumbent* incumbent) {
  const Result<uint64_t> seed = secret_seed();
  if (!seed.ok()) return seed.status();
  attempt.seeds.push_back(fmt::format("{:016x}", *seed));
  bench::Random secret(*seed);
  const NormalPool pool(secret);
  Result<CallMemory> memory = memory_for_timing(task_);
  if (!memory.ok()) return memory.status();
  Result<CallMemory> other = memory_for_timing(task_);
  if (!other.ok()) return other.status();
  Finding finding;
  const auto process = start(*attempt.compiled, *memory, finding);
  if (!process.ok()) return process.status();
  if (!finding.ok()) return finding;
  const GateContext context{task_, **process, *memory, pool, secret};
  attempt.timed = {};
  if (incumbent == nullptr) return run_timing(context, nullptr, attempt.timed);
  const Result<const Compiled*> compiled = compiled_incumbent(incumbent->program);
  if (!compiled.ok()) return compiled.status();
  const auto rival = start(**compiled, *other, finding);
  if (!rival.ok()) return rival.status();
  if (!finding.ok()) return Status(StatusCode::internal, "incumbent: " + finding.sentence);
  const Contender contender{**rival, *other};
  return run_timing(context, &contender, attempt.timed);
}

Result<Finding> CpuEvaluator::measure(Attempt& attempt, const Incumbent* incumbent) {
  Evaluation& result = attempt.result;
  result.stage = "gates";
  Result<Finding> found = gate(attempt);
  if (!found.ok() || !found->ok()) return found;
  result.stage = "time";
  found = time(attempt, incumbent);
  if (!found.ok() || !found->ok()) return found;
  if (incumbent != nullptr && attempt.timed.ratio > 1 + attempt.timed.noise) {
    // A winner is measured anew, and that time counts: the first one was chosen for being good.
    result.stage = "recheck";
    result.evidence["first_ratio"] = attempt.timed.ratio;
    found = gate(attempt);
    if (!found.ok() || !found->ok()) return found;
    result.stage = "recheck";
    found = time(attempt, incumbent);
    if (!found.ok() || !found->ok()) return found;
  }
  result.score = attempt.timed.ratio * (incumbent == nullptr ? 1 : incumbent->score);
  result.noise = attempt.timed.noise;
  result.evidence["times"] = timed_json(task_, attempt.timed);
  return Finding{};
}

Result<Evaluation> CpuEvaluator::evaluate(const Program& program, const Incumbent* incumbent) {
  Attempt attempt;
  Evaluation& result = attempt.result;
  const auto end = [&](const Finding& finding) {
    result.outcome = finding.outcome;
    result.reason = finding.sentence;
    result.evidence["seeds"] = attempt.seeds;
    return result;
  };
  result.stage = "compile";
  if (std::ssize(program.source) > task_.budgets.source_bytes) {
    return end(
        {Outcome::resources, fmt::format("the source has {} bytes, the budget is {}",
                                         program.source.size(), task_.budgets.source_bytes)});
  }
  Finding finding;
  Result<std::unique_ptr<Compiled>> compiled = compile(task_, program, runner_, finding);
  if (!compiled.ok()) return compiled.status();
  if (!finding.ok()) return end(finding);
  attempt.compiled = std::move(*compiled);
  result.evidence["compiler"] = {{"object_bytes", attempt.compiled->object_bytes},
                                 {"seconds", attempt.compiled->seconds},
                                 {"report", attempt.compiled->report}};
  result.stage = "budgets";
  const Result<Finding> allowed = check_object(task_, *attempt.compiled);
  if (!allowed.ok()) return allowed.status();
  if (!allowed->ok()) return end(*allowed);
  const Result<Finding> found = measure(attempt, incumbent);
  if (!found.ok()) return found.status();
  const bool wins = found->ok() && (incumbent == nullptr || attempt.timed.ratio > 1);
  if (wins) {  // the next one is timed against it
    incumbent_ = std::move(attempt.compiled);
    incumbent_hash_ = hash_of(program);
  }
  return end(*found);
}

}  // namespace flashcore::evolve
