#include "evolve/evaluate/time_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cases/work.hpp"
#include "bench/text/numbers.hpp"
#include "bench/time/timing.hpp"
#include "evolve/evaluate/judge.hpp"

namespace flashcore::evolve {
namespace {

constexpr uint64_t kMostTimedCalls = 1024;
constexpr uint64_t kFirstGpuCalls = 16;
constexpr int kFirstSamples = 3;
constexpr double kTimedFlop = 1e6;  // per timed call: all rows of a small one
// The machine may have been busy, or below its highest clock, when the ceiling was measured.
constexpr double kMargin = 1.15;
// Wall time may exceed 1.5 times the GPU's time by this: the way between processes.
constexpr double kUnseen = 2e-3;
constexpr int kClockTries = 20;

double flop_of(const CallShape& shape, const Task& task) {
  return bench::forward_flop(problem_of(shape, task));
}

// Each input read once and each output written once.
double bytes_of(const CallShape& s, const Task& task) {
  const int64_t q = s.batch * s.heads_q * s.seqlen_q, kv = s.batch * s.heads_kv * s.seqlen_kv;
  return static_cast<double>(size_of(task.dtype)) * static_cast<double>(2 * (q + kv) * s.head_dim) +
         4.0 * static_cast<double>(q);
}

// Seconds per call of a sample.
Ran sample(const GateContext& c, const Contender& who, const CallShape& shape, uint64_t calls) {
  const RunCommand command = who.memory.prepare(shape, calls, c.pool, c.secret);
  Ran ran = who.candidate.run(command, c.task.budgets.call_seconds);
  ran.seconds /= static_cast<double>(calls);
  return ran;
}

// A sample whose wall time exceeds 1.5 times the GPU's own time by at most kUnseen. A busy machine
// takes longer at times: then another sample is taken.
Ran believed_sample(const GateContext& c, const Contender& who, const CallShape& shape,
                    uint64_t calls) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kClockTries; ++i) {
    Ran ran = sample(c, who, shape, calls);
    const double unseen = ran.wall_seconds - 1.5 * ran.seconds * static_cast<double>(calls);
    if (!ran.finding.ok() || unseen <= kUnseen) return ran;
    least = std::min(least, unseen);
  }
  return {.finding = {Outcome::constraints,
                      fmt::format("{}: the clock of the GPU is {} behind the evaluator's",
                                  shape_text(shape), bench::seconds_text(least))}};
}

// The shortest of the first samples: the machine may have been busy in the others.
Ran shortest_first(const GateContext& c, const Contender& who, const CallShape& shape,
                   uint64_t calls) {
  Ran shortest = sample(c, who, shape, calls);
  for (int i = 1; shortest.finding.ok() && i < kFirstSamples; ++i) {
    Ran ran = sample(c, who, shape, calls);
    if (!ran.finding.ok() || ran.seconds < shortest.seconds) shortest = std::move(ran);
  }
  return shortest;
}

// Checks every output for NaN, and applies the gates to a random tenth of the calls.
Result<Finding> judge_sample(const GateContext& c, const CallShape& shape, uint64_t calls) {
  if (c.memory.has_nan()) {
    return Finding{Outcome::correctness, "a timed call left an element unwritten, or NaN"};
  }
  const auto always = static_cast<uint64_t>(c.secret.integer(0, static_cast<int64_t>(calls) - 1));
  for (uint64_t i = 0; i < calls; ++i) {
    if (i != always && !c.secret.chance(0.1)) continue;
    const Result<bench::Verdict> verdict =
        judge_rows(c.task, shape, c.memory, i, kTimedFlop, c.secret);
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
  const Contender candidate{c.candidate, c.memory};
  const CallShape& shape = timed.shape;
  // The first samples are not timed; they determine the number of calls. On the GPU a single call
  // is mostly the round trip.
  uint64_t most = std::min(kMostTimedCalls, c.memory.room_for(shape));
  if (incumbent != nullptr) most = std::min(most, incumbent->memory.room_for(shape));
  most = std::max<uint64_t>(most, 1);
  const uint64_t first = std::min<uint64_t>(most, c.task.is_gpu() ? kFirstGpuCalls : 1);
  Ran ran = shortest_first(c, candidate, shape, first);
  if (!ran.finding.ok()) return ran.finding;
  double shortest = std::max(ran.seconds, 1e-7);
  if (incumbent != nullptr) {
    ran = shortest_first(c, *incumbent, shape, first);
    if (!ran.finding.ok())
      return Status(StatusCode::internal, "incumbent: " + ran.finding.sentence);
    shortest = std::min(shortest, std::max(ran.seconds, 1e-7));
  }
  const auto wanted = static_cast<uint64_t>(std::ceil(c.task.timing.sample_seconds / shortest));
  timed.calls = std::clamp(wanted, first, most);
  std::vector<double> ours, theirs;
  for (int64_t round = 0; round < c.task.timing.rounds; ++round) {
    if (incumbent != nullptr) {
      ran = sample(c, *incumbent, shape, timed.calls);
      if (!ran.finding.ok())
        return Status(StatusCode::internal, "incumbent: " + ran.finding.sentence);
      theirs.push_back(ran.seconds);
    }
    ran = believed_sample(c, candidate, shape, timed.calls);
    if (!ran.finding.ok()) return ran.finding;
    ours.push_back(ran.seconds);
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
    const double bytes = bytes_of(one.shape, task) / one.seconds;
    if (task.peak_bytes_per_second > 0 && bytes > task.peak_bytes_per_second) {
      return {Outcome::constraints,
              fmt::format("{}: {} would be {:.1f} TB/s, and L2 has {:.1f}", shape_text(one.shape),
                          bench::seconds_text(one.seconds), bytes / 1e12,
                          task.peak_bytes_per_second / 1e12)};
    }
    const double rate = flop_of(one.shape, task) / one.seconds;
    if (rate <= kMargin * task.peak_flop_per_second) continue;
    return {Outcome::constraints,
            fmt::format("{}: {} would be {}, and the peak of this machine is {}",
                        shape_text(one.shape), bench::seconds_text(one.seconds),
                        bench::rate_text(rate), bench::rate_text(task.peak_flop_per_second))};
  }
  return {};
}

nlohmann::ordered_json timed_json(const Task& task, const Timed& timed) {
  auto list = nlohmann::ordered_json::array();
  for (const TimedShape& one : timed.shapes) {
    const double flop = flop_of(one.shape, task);
    list.push_back({{"shape", shape_text(one.shape)},
                    {"seconds", one.seconds},
                    {"incumbent_seconds", one.incumbent_seconds},
                    {"noise", one.noise},
                    {"calls_per_sample", one.calls},
                    {"gflops", flop / one.seconds / 1e9},
                    {"bound_seconds", flop / task.peak_flop_per_second},
                    {"of_peak", flop / one.seconds / task.peak_flop_per_second}});
  }
  return list;
}

}  // namespace flashcore::evolve
