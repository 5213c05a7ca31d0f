#include "evolve/evaluate/time_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/cases/work.hpp"
#include "bench/text/numbers.hpp"
#include "bench/time/timing.hpp"
#include "evolve/evaluate/judge.hpp"

namespace flashcore::evolve {
namespace {

constexpr uint64_t kMostTimedCalls = 1024;
constexpr double kTimedFlop = 1e6;  // of a timed call: all rows of a small one
// The ceiling is measured on a machine that may have been busy, or below its highest clock.
constexpr double kMargin = 1.15;

double flop_of(const CallShape& shape, bool causal) {
  return bench::forward_flop(problem_of(shape, causal));
}

// Fresh inputs for calls of a command.
RunCommand prepare(const GateContext& c, CallMemory& memory, const CallShape& shape,
                   uint64_t calls) {
  const RunCommand command = memory.prepare(shape, calls, c.secret);
  for (uint64_t i = 0; i < calls; ++i) {
    for (const std::span<float> tensor : {memory.q(i), memory.k(i), memory.v(i)}) {
      c.pool.fill(tensor, c.secret);
    }
  }
  return command;
}

// Seconds of one call of a sample.
CandidateProcess::Ran sample(const GateContext& c, const Contender& who, const CallShape& shape,
                             uint64_t calls) {
  const RunCommand command = prepare(c, who.memory, shape, calls);
  CandidateProcess::Ran ran = who.process.run(command, c.task.budgets.call_seconds);
  ran.processor_seconds /= static_cast<double>(calls);
  ran.wall_seconds /= static_cast<double>(calls);
  return ran;
}

// Every output is looked through, and a random tenth of the calls is held to the gates.
Result<Finding> judge_sample(const GateContext& c, const CallShape& shape, uint64_t calls) {
  if (c.memory.has_nan()) {
    return Finding{Outcome::correctness, "a timed call left an element unwritten, or NaN"};
  }
  const auto always = static_cast<uint64_t>(c.secret.integer(0, static_cast<int64_t>(calls) - 1));
  for (uint64_t i = 0; i < calls; ++i) {
    if (i != always && !c.secret.chance(0.1)) continue;
    const Result<bench::Verdict> verdict =
        judge_rows(shape, c.task.causal, c.memory, i, kTimedFlop, c.secret);
    if (!verdict.ok()) return verdict.status();
    if (!verdict->passed) {
      return Finding{Outcome::correctness,
                     "the output of a timed call is wrong " + verdict->failure};
    }
  }
  return Finding{};
}

double relative_noise(const std::vector<double>& samples) {
  return (bench::quantile(samples, 0.75) - bench::quantile(samples, 0.25)) / 2 /
         bench::quantile(samples, 0.5);
}

Result<Finding> time_shape(const GateContext& c, const Contender* incumbent, TimedShape& timed) {
  const Contender candidate{c.process, c.memory};
  const CallShape& shape = timed.shape;
  // The first call is not timed; it says how many a sample has.
  CandidateProcess::Ran ran = sample(c, candidate, shape, 1);
  if (!ran.finding.ok()) return ran.finding;
  double shortest = std::max(ran.processor_seconds, 1e-7);
  if (incumbent != nullptr) {
    ran = sample(c, *incumbent, shape, 1);
    if (!ran.finding.ok())
      return Status(StatusCode::internal, "incumbent: " + ran.finding.sentence);
    shortest = std::min(shortest, std::max(ran.processor_seconds, 1e-7));
  }
  const auto wanted = static_cast<uint64_t>(std::ceil(c.task.timing.sample_seconds / shortest));
  uint64_t calls = std::min({wanted, kMostTimedCalls, c.memory.room_for(shape)});
  if (incumbent != nullptr) calls = std::min(calls, incumbent->memory.room_for(shape));
  timed.calls = std::max<uint64_t>(calls, 1);
  std::vector<double> ours, theirs;
  for (int64_t round = 0; round < c.task.timing.rounds; ++round) {
    if (incumbent != nullptr) {
      ran = sample(c, *incumbent, shape, timed.calls);
      if (!ran.finding.ok())
        return Status(StatusCode::internal, "incumbent: " + ran.finding.sentence);
      theirs.push_back(ran.processor_seconds);
    }
    ran = sample(c, candidate, shape, timed.calls);
    if (!ran.finding.ok()) return ran.finding;
    ours.push_back(ran.processor_seconds);
    Result<Finding> judged = judge_sample(c, shape, timed.calls);
    if (!judged.ok() || !judged->ok()) return judged;
  }
  timed.seconds = bench::quantile(ours, 0.5);
  timed.noise = relative_noise(ours);
  if (incumbent != nullptr) {
    timed.incumbent_seconds = bench::quantile(theirs, 0.5);
    timed.noise += relative_noise(theirs);
  }
  return Finding{};
}

}  // namespace

Result<Finding> run_timing(const GateContext& c, const Contender* incumbent, Timed& timed) {
  double logs = 0;
  for (const CallShape& shape : c.task.shapes) {
    TimedShape& one = timed.shapes.emplace_back();
    one.shape = shape;
    Result<Finding> found = time_shape(c, incumbent, one);
    if (!found.ok() || !found->ok()) return found;
    if (incumbent != nullptr) logs += std::log(one.incumbent_seconds / one.seconds);
    timed.noise = std::max(timed.noise, one.noise);
  }
  timed.ratio = std::exp(logs / static_cast<double>(timed.shapes.size()));
  return check_plausible(c.task, timed);
}

Finding check_plausible(const Task& task, const Timed& timed) {
  for (const TimedShape& one : timed.shapes) {
    const double rate = flop_of(one.shape, task.causal) / one.seconds;
    if (rate <= kMargin * task.peak_flop_a_second) continue;
    return {Outcome::constraints,
            fmt::format("{}: {} would be {}, and the peak of this machine is {}",
                        shape_text(one.shape), bench::seconds_text(one.seconds),
                        bench::rate_text(rate), bench::rate_text(task.peak_flop_a_second))};
  }
  return {};
}

nlohmann::ordered_json timed_json(const Task& task, const Timed& timed) {
  auto list = nlohmann::ordered_json::array();
  for (const TimedShape& one : timed.shapes) {
    const double flop = flop_of(one.shape, task.causal);
    list.push_back({{"shape", shape_text(one.shape)},
                    {"seconds", one.seconds},
                    {"incumbent_seconds", one.incumbent_seconds},
                    {"noise", one.noise},
                    {"calls_a_sample", one.calls},
                    {"gflops", flop / one.seconds / 1e9},
                    {"bound_seconds", flop / task.peak_flop_a_second},
                    {"of_peak", flop / one.seconds / task.peak_flop_a_second}});
  }
  return list;
}

}  // namespace flashcore::evolve
