#include "evolve/evaluate/stage_evaluator.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "evolve/evaluate/candidate_process.hpp"
#include "evolve/evaluate/check_object.hpp"
#include "evolve/evaluate/inspect.hpp"
#include "evolve/evaluate/time_stage.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

constexpr uint64_t kMemory = uint64_t{48} << 20;  // about, for the calls of a sample
constexpr uint64_t kCallsToHold = 64;
constexpr uint64_t kGpuMemory = uint64_t{32} << 20;  // for the outputs of a sample
constexpr uint64_t kGpuCallsToHold = 1024;
// GPU processes: enough for two attempts, so that the next attempt's processes start while this
// one's gates run.
constexpr size_t kAhead = 6;

Result<uint64_t> secret_seed() {
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) == sizeof seed) return seed;
  return Status(StatusCode::internal, "getrandom: has no numbers");
}

// Room for as many calls of the largest shape as fit. On the GPU only outputs count.
Result<CallMemory> memory_for_timing(const Task& task) {
  double largest = 0;
  for (const CallShape& s : task.shapes) {
    const int64_t q = s.heads_q * s.seqlen_q, kv = task.is_gpu() ? 0 : s.heads_kv * s.seqlen_kv;
    largest = std::max(largest, static_cast<double>(size_of(task.dtype)) *
                                    static_cast<double>((task.is_gpu() ? 1 : 2) * s.head_dim *
                                                        s.batch * (q + kv)));
  }
  const auto calls = static_cast<uint64_t>(
      std::clamp(static_cast<double>(task.is_gpu() ? kGpuMemory : kMemory) / largest, 1.0,
                 static_cast<double>(task.is_gpu() ? kGpuCallsToHold : kCallsToHold)));
  return task.is_gpu() ? CallMemory::make_windows(task.dtype, task.shapes, calls)
                       : CallMemory::make(task.dtype, task.shapes, calls);
}

}  // namespace

struct StageEvaluator::Attempt {
  Evaluation result;
  const Program* program = nullptr;
  std::unique_ptr<Compiled> compiled;
  std::vector<std::string> seeds;
  Timed timed;
};

// Contexts are created while other stages run, and never while a candidate is timed.
Status StageEvaluator::start_ahead() {
  while (task_.is_gpu() && ahead_.size() < kAhead) {
    Result<std::unique_ptr<GpuCandidate>> one = GpuCandidate::start(tools_.gpu_runner);
    if (!one.ok()) return one.status();
    ahead_.push_back(std::move(*one));
  }
  return {};
}

Result<std::unique_ptr<Candidate>> StageEvaluator::start(const Compiled& compiled,
                                                         const Program& program,
                                                         const CallMemory& memory,
                                                         Finding& finding) {
  if (task_.is_gpu()) {
    if (ahead_.empty()) FLASHCORE_RETURN_IF_ERROR(start_ahead());
    std::unique_ptr<GpuCandidate> one = std::move(ahead_.front());  // the oldest one
    ahead_.erase(ahead_.begin());
    FLASHCORE_RETURN_IF_ERROR(
        one->load(task_, load_text(compiled.object(), program), memory, finding));
    return std::unique_ptr<Candidate>(std::move(one));
  }
  Result<std::unique_ptr<CandidateProcess>> one = CandidateProcess::start(
      {.runner = tools_.runner,
       .folder = compiled.root.path(),
       .object = kObject,
       .memory_bytes = static_cast<uint64_t>(task_.budgets.memory_mib) << 20,
       .load_seconds = task_.budgets.call_seconds,
       .processor_seconds = 100 * task_.budgets.call_seconds},
      memory.inputs(), memory.outputs(), finding);
  if (!one.ok()) return one.status();
  return std::unique_ptr<Candidate>(std::move(*one));
}

// One process for both stages; a new one, with new seeds, each time.
Result<Finding> StageEvaluator::gate(Attempt& attempt) {
  const Result<uint64_t> seed = secret_seed();
  if (!seed.ok()) return seed.status();
  attempt.seeds.push_back(fmt::format("{:016x}", *seed));
  bench::Random secret(*seed);
  const NormalPool pool(task_.dtype, secret);
  const std::vector<CallShape> hidden = hidden_shapes(task_, secret);
  std::vector<CallShape> shapes = hidden;
  shapes.insert(shapes.end(), task_.shapes.begin(), task_.shapes.end());
  Result<CallMemory> memory = CallMemory::make(task_.dtype, shapes, 1);
  if (!memory.ok()) return memory.status();
  Finding finding;
  const auto candidate = start(*attempt.compiled, *attempt.program, *memory, finding);
  if (!candidate.ok()) return candidate.status();
  if (!finding.ok()) return finding;
  const GateContext context{task_, **candidate, *memory, pool, secret};
  Result<Finding> found = run_gates(context, hidden, attempt.result.evidence["gates"]);
  (*candidate)->describe(attempt.result.evidence);
  if (!found.ok() || !found->ok()) return found;
  attempt.result.stage = "repeat";
  return run_repeat(context, hidden);
}

Result<const Compiled*> StageEvaluator::compiled_incumbent(const Program& program) {
  const std::string hash = hash_of(program);
  if (incumbent_hash_ == hash) return incumbent_.get();
  Finding finding;
  Result<std::unique_ptr<Compiled>> compiled = compile(task_, program, tools_, finding);
  if (!compiled.ok()) return compiled.status();
  if (!finding.ok()) return Status(StatusCode::internal, "incumbent: " + finding.sentence);
  incumbent_ = std::move(*compiled);
  incumbent_hash_ = hash;
  return incumbent_.get();
}

Result<Finding> StageEvaluator::time(Attempt& attempt, const Incumbent* incumbent) {
  const Result<uint64_t> seed = secret_seed();
  if (!seed.ok()) return seed.status();
  attempt.seeds.push_back(fmt::format("{:016x}", *seed));
  bench::Random secret(*seed);
  const NormalPool pool(task_.dtype, secret);
  Result<CallMemory> memory = memory_for_timing(task_);
  if (!memory.ok()) return memory.status();
  Result<CallMemory> other = memory_for_timing(task_);
  if (!other.ok()) return other.status();
  Finding finding;
  const auto candidate = start(*attempt.compiled, *attempt.program, *memory, finding);
  if (!candidate.ok()) return candidate.status();
  if (!finding.ok()) return finding;
  const GateContext context{task_, **candidate, *memory, pool, secret};
  attempt.timed = {};
  for (const auto& one : ahead_) FLASHCORE_RETURN_IF_ERROR(one->wait());
  if (incumbent == nullptr) return run_timing(context, nullptr, attempt.timed);
  const Result<const Compiled*> compiled = compiled_incumbent(incumbent->program);
  if (!compiled.ok()) return compiled.status();
  const auto rival = start(**compiled, incumbent->program, *other, finding);
  if (!rival.ok()) return rival.status();
  if (!finding.ok()) return Status(StatusCode::internal, "incumbent: " + finding.sentence);
  const Contender contender{**rival, *other};
  return run_timing(context, &contender, attempt.timed);
}

Result<Finding> StageEvaluator::measure(Attempt& attempt, const Incumbent* incumbent) {
  Evaluation& result = attempt.result;
  result.stage = "gates";
  FLASHCORE_RETURN_IF_ERROR(start_ahead());
  Result<Finding> found = gate(attempt);
  if (!found.ok() || !found->ok()) return found;
  if (task_.is_gpu() && tools_.sanitizes) {
    result.stage = "sanitizer";
    found = sanitized(task_, *attempt.program, *attempt.compiled, tools_);
    if (!found.ok() || !found->ok()) return found;
    result.evidence["sanitizer"] = "clean";
  }
  result.stage = "time";
  found = time(attempt, incumbent);
  if (!found.ok() || !found->ok()) return found;
  if (incumbent != nullptr && attempt.timed.ratio > 1 + attempt.timed.noise) {
    // A winner is measured again, and the second time counts: the first one was selected for being good.
    result.stage = "recheck";
    result.evidence["first_ratio"] = attempt.timed.ratio;
    FLASHCORE_RETURN_IF_ERROR(start_ahead());
    found = gate(attempt);
    if (!found.ok() || !found->ok()) return found;
    result.stage = "recheck";
    found = time(attempt, incumbent);
    if (!found.ok() || !found->ok()) return found;
  } else if (incumbent != nullptr && attempt.timed.ratio > 1) {
    result.evidence["within_noise"] = attempt.timed.ratio;  // the gain was not confirmed
    attempt.timed.ratio = 1;
  }
  result.score = attempt.timed.ratio * (incumbent == nullptr ? 1 : incumbent->score);
  result.noise = attempt.timed.noise;
  result.evidence["times"] = timed_json(task_, attempt.timed);
  return Finding{};
}

Result<Evaluation> StageEvaluator::evaluate(const Program& program, const Incumbent* incumbent) {
  Attempt attempt;
  attempt.program = &program;
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
        {Outcome::resources, fmt::format("the source has {} bytes, wanted at most {}",
                                         program.source.size(), task_.budgets.source_bytes)});
  }
  Finding finding;
  Result<std::unique_ptr<Compiled>> compiled = compile(task_, program, tools_, finding);
  if (!compiled.ok()) return compiled.status();
  if (!finding.ok()) return end(finding);
  attempt.compiled = std::move(*compiled);
  result.evidence["compiler"] = compiled_json(task_, *attempt.compiled);
  result.stage = "budgets";
  const Result<Finding> allowed = check_object(task_, program, *attempt.compiled);
  if (!allowed.ok()) return allowed.status();
  if (!allowed->ok()) return end(*allowed);
  const Result<Finding> found = measure(attempt, incumbent);
  if (!found.ok()) return found.status();
  const bool wins = found->ok() && (incumbent == nullptr || attempt.timed.ratio > 1);
  if (wins && task_.is_gpu() && tools_.profiles) {
    result.evidence["profile"] = profiled(task_, program, *attempt.compiled, tools_);
  }
  if (wins) {  // the next candidate is timed against it
    incumbent_ = std::move(attempt.compiled);
    incumbent_hash_ = hash_of(program);
  }
  return end(*found);
}

}  // namespace flashcore::evolve
