#include "evolve/loop/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "bench/tensors/random.hpp"
#include "evolve/loop/population.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostFailures = 5;  // consecutive failures of a proposer

// The random choices of one attempt: a function of the run's seed and the attempt only, which is
// the only state that a resumed run must restore.
bench::Random random_of(uint64_t seed, int64_t attempt) {
  bench::Random mixed(seed ^ (static_cast<uint64_t>(attempt) << 32));
  return bench::Random(mixed.bits());
}

class Loop {
 public:
  Loop(const LoopOptions& options, Store& store, Proposer& proposer, Evaluator& evaluator)
      : options_(options), store_(store), proposer_(proposer), evaluator_(evaluator) {}

  Result<LoopEnd> run() {
    const Result<std::string> seed = store_.setting("random");
    if (!seed.ok()) return seed.status();
    random_ = std::strtoull(seed->c_str(), nullptr, 10);
    for (;;) {
      Result<std::vector<Attempt>> attempts = store_.attempts();
      if (!attempts.ok()) return attempts.status();
      if (!attempts->empty() && !attempts->back().done) {
        FLASHCORE_RETURN_IF_ERROR(finish(*attempts));
        continue;
      }
      if (attempts->empty()) {
        const Result<int64_t> begun = store_.begin(
            {.operation = "seed", .parents = {}, .proposer = "", .name = "seed", .thought = ""},
            options_.seed);
        if (!begun.ok()) return begun.status();
        continue;
      }
      if (attempts->front().outcome != "valid") {
        return invalid("seed: is not valid ({}: {}), wanted one that passes every gate",
                       attempts->front().outcome, attempts->front().reason);
      }
      begun_at_ = attempts->back().seconds;
      if (attempts->back().id >= options_.plan.last_attempt) return LoopEnd::attempts;
      if (options_.plan.last_second > 0 && begun_at_ >= options_.plan.last_second) {
        return LoopEnd::seconds;
      }
      const Result<bool> proposed = propose(*attempts);
      if (!proposed.ok()) return proposed.status();
      if (!*proposed) return LoopEnd::nothing_left;
    }
  }

 private:
  double seconds() const {
    return begun_at_ + std::chrono::duration<double>(Clock::now() - since_).count();
  }

  // Returns false if the proposer has nothing left.
  Result<bool> propose(const std::vector<Attempt>& attempts) {
    since_ = Clock::now();
    const int64_t next = attempts.back().id + 1;
    bench::Random random = random_of(random_, next);
    Choice choice = choose(options_.plan.preset, attempts, options_.plan.elites, random);
    if (const std::optional<RecordedChoice> recorded = proposer_.choice(next)) {
      choice = {recorded->operation, {}};
      for (const int64_t id : recorded->parents) {
        choice.parents.push_back(&attempts[static_cast<size_t>(id - 1)]);
      }
    }
    Request request{.attempt = next,
                    .random = random.bits(),
                    .preset = options_.plan.preset,
                    .operation = choice.operation,
                    .parents = choice.parents,
                    .elites = elites_of(attempts, options_.plan.elites),
                    .attempts = &attempts,
                    .task = options_.task};
    Result<std::optional<Proposal>> proposal = proposer_.propose(request);
    Origin origin{choice.operation, {}, options_.plan.proposer, "", "", 0};
    for (const Attempt* const parent : choice.parents) origin.parents.push_back(parent->id);
    if (!proposal.ok()) {
      if (proposal.status().code() != StatusCode::invalid_argument) return proposal.status();
      return failed_proposal(origin, proposal.status().message());
    }
    if (!*proposal) return false;
    failures_ = 0;
    origin.name = (*proposal)->name;
    origin.thought = (*proposal)->thought;
    origin.predicted = (*proposal)->predicted;
    const Result<int64_t> begun = store_.begin(origin, (*proposal)->program);
    if (!begun.ok()) return begun.status();
    return true;
  }

  Result<bool> failed_proposal(const Origin& origin, const std::string& reason) {
    const Result<int64_t> id = store_.begin(origin, std::nullopt);
    if (!id.ok()) return id.status();
    Attempt attempt{.id = *id, .origin = origin};
    FLASHCORE_RETURN_IF_ERROR(end(attempt, {.outcome = std::string(to_string(Outcome::proposal)),
                                            .stage = "proposal",
                                            .reason = reason}));
    if (++failures_ < kMostFailures) return true;
    return invalid("proposer: failed {} times, the last time because: {}", failures_, reason);
  }

  // Evaluates the last attempt.
  Status finish(std::vector<Attempt>& attempts) {
    Attempt attempt = std::move(attempts.back());
    attempts.pop_back();
    if (since_ == Clock::time_point()) {
      since_ = Clock::now();
      begun_at_ = attempts.empty() ? 0 : attempts.back().seconds;
    }
    if (attempt.hash.empty()) {  // killed while storing a failed proposal
      return end(attempt, {.outcome = std::string(to_string(Outcome::proposal)),
                           .stage = "proposal",
                           .reason = "the proposer failed"});
    }
    const auto same = std::find_if(attempts.begin(), attempts.end(),
                                   [&](const Attempt& one) { return one.hash == attempt.hash; });
    if (same != attempts.end()) {
      return end(attempt, {.outcome = std::string(to_string(Outcome::duplicate)),
                           .stage = "proposal",
                           .reason = fmt::format("the same program as attempt {}", same->id)});
    }
    const std::vector<const Attempt*> best = elites_of(attempts, 1);
    std::optional<Incumbent> incumbent;
    if (!best.empty()) incumbent = Incumbent{best.front()->program, best.front()->score};
    Result<Evaluation> found =
        evaluator_.evaluate(attempt.program, incumbent ? &*incumbent : nullptr);
    if (!found.ok()) return found.status();
    return end(attempt, {.outcome = std::string(to_string(found->outcome)),
                         .stage = found->stage,
                         .reason = found->reason,
                         .score = found->score,
                         .noise = found->noise,
                         .evidence = std::move(found->evidence)});
  }

  Status end(Attempt& attempt, Ending ending) {
    ending.seconds = seconds();
    FLASHCORE_RETURN_IF_ERROR(store_.end(attempt.id, ending));
    if (!options_.tell) return {};
    attempt.done = true;
    attempt.outcome = ending.outcome;
    attempt.stage = ending.stage;
    attempt.reason = ending.reason;
    attempt.score = ending.score;
    attempt.noise = ending.noise;
    attempt.seconds = ending.seconds;
    attempt.evidence = std::move(ending.evidence);
    options_.tell(attempt);
    return {};
  }

  const LoopOptions& options_;
  Store& store_;
  Proposer& proposer_;
  Evaluator& evaluator_;
  uint64_t random_ = 0;
  int failures_ = 0;
  double begun_at_ = 0;  // elapsed seconds of the run at `since_`
  Clock::time_point since_;
};

}  // namespace

nlohmann::ordered_json plan_json(const RunPlan& plan) {
  return {{"proposer", plan.proposer},       {"preset", plan.preset},
          {"elites", plan.elites},           {"last_attempt", plan.last_attempt},
          {"last_second", plan.last_second}, {"proposer_seconds", plan.proposer_seconds},
          {"profiles", plan.profiles}};
}

Result<RunPlan> stored_plan(const Store& store) {
  const Result<std::string> text = store.setting("plan");
  if (!text.ok()) return text.status();
  if (text->empty()) return invalid("resume: no run was begun here, wanted flashcore evolve run");
  const auto json = nlohmann::ordered_json::parse(*text);
  return RunPlan{json["proposer"],
                 json["preset"],
                 json["elites"],
                 json["last_attempt"],
                 json["last_second"],
                 json["proposer_seconds"],
                 json.value("profiles", false)};
}

Result<LoopEnd> run_loop(const LoopOptions& options, Store& store, Proposer& proposer,
                         Evaluator& evaluator) {
  return Loop(options, store, proposer, evaluator).run();
}

}  // namespace flashcore::evolve
