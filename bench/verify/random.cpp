#include "bench/verify/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/cases/batch_invariance_cases.hpp"
#include "bench/cases/random_backward.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/verify/kernel.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

std::string repeat(uint64_t seed, const std::string& kernel, const RandomTrials& asked,
                   const PlanOptions& plan) {
  constexpr RandomSpace kUsual;
  const RandomSpace& space = asked.space;
  std::string line = fmt::format("flashcore verify{} --shapes none --random 1 --random-seed {}",
                                 asked.backward ? " --backward" : "", seed);
  if (asked.narrow) line += " --narrow";
  if (space.only_e4m3) line += " --dtypes f8e4m3";
  // With --batch-invariant the choice itself is verified, too.
  if (!plan.batch_invariant || !plan.kernel.empty()) line += " --kernel " + kernel;
  if (space.largest_seqlen != kUsual.largest_seqlen) {
    line += fmt::format(" --largest-seqlen {}", space.largest_seqlen);
  }
  if (space.largest_head_dim != kUsual.largest_head_dim) {
    line += fmt::format(" --largest-head-dim {}", space.largest_head_dim);
  }
  if (space.most_heads != kUsual.most_heads) {
    line += fmt::format(" --most-heads {}", space.most_heads);
  }
  if (space.caches) line += " --paged";
  if (space.latent) line += " --latent";
  if (space.transposed_v == 1) line += " --v-transposed";
  if (plan.batch_invariant) line += " --batch-invariant";
  if (!plan.deterministic) line += " --any-order";
  return line + repeat_device(plan.device);
}

// Runs the chosen kernel on one entry in several batches: it must be one kernel, and the same bits.
Status judge_company(Trial trial, const RandomSpace& space, const PlanOptions& plan,
                     Findings& found) {
  const BatchInvarianceCases cases(trial.seed, space.largest_seqlen, space.largest_head_dim,
                                   space.latent);
  trial.pass.problem = cases.problem(0);
  Verdict verdict;
  std::string kernel;
  std::vector<double> first;
  for (size_t batch = 0; batch < cases.batches() && verdict.failure.empty(); ++batch) {
    const Result<Plan> chosen = make_plan(cases.problem(batch), plan);
    if (!chosen.ok()) {
      if (chosen.status().code() != StatusCode::unsupported) return chosen.status();
      found.refuse(plan.kernel.empty() ? "none" : plan.kernel, chosen.status().message());
      return {};
    }
    const std::string where = cases.describe(batch);
    if (batch == 0) kernel = chosen->kernel();
    if (chosen->kernel() != kernel) {
      verdict.failure = fmt::format("{}: runs {} alone, {} here", where, kernel, chosen->kernel());
      break;
    }
    HostProblem host = cases.fill(batch);
    std::set<std::string> launched;
    FLASHCORE_RETURN_IF_ERROR(run_kernel(host, plan, kernel, &launched));
    verdict.launched.merge(launched);
    const std::vector<double> results = cases.results(host, batch);
    if (batch == 0) first = results;
    if (std::memcmp(results.data(), first.data(), first.size() * sizeof(double)) != 0) {
      verdict.failure = fmt::format("{}: other bits than alone", where);
    }
  }
  verdict.passed = verdict.failure.empty();
  found.add(kernel, verdict, trial);
  return {};
}

Pass pass_of(const RandomBackward& draw) { return {draw.problem(), draw.gradients()}; }
Pass pass_of(const RandomDraw& draw) { return {draw.problem()}; }

template <class Draw>
Result<std::vector<KernelVerdict>> asked_kernels(const Draw& draw, const Tested& tested) {
  return kernels_under_test(pass_of(draw), tested.plan, true, tested.kernels);
}

// Returns whether a kernel under test computes the problem; also true if that is unknown: judging
// it reports why.
template <class Draw>
bool is_computed(const Draw& draw, const Tested& tested) {
  const Result<std::vector<KernelVerdict>> kernels = asked_kernels(draw, tested);
  return !kernels.ok() ||
         std::any_of(kernels->begin(), kernels->end(),
                     [](const KernelVerdict& kernel) { return kernel.refusal.empty(); });
}

// Draws the problem of a seed; with V in rows if no kernel under test takes it transposed, without
// mixed fp8 types or more outputs if none supports these. If narrow: from the widest space in which
// some kernel under test computes it; if there is none for this seed, tries other seeds that are
// derived from it.
template <class Draw>
Draw drawn(uint64_t seed, const RandomTrials& asked, const Tested& tested) {
  constexpr int kAttempts = 20;
  constexpr uint64_t kApart = 0x9E3779B97F4A7C15;
  const int last = asked.narrow ? kAttempts - 1 : 0;
  for (int attempt = 0;; ++attempt) {
    const int narrowing = std::min(attempt, kNarrowings);
    RandomSpace space = narrowed(asked.space, narrowing);
    const uint64_t number = seed ^ (kApart * static_cast<uint64_t>(attempt - narrowing));
    if (space.transposed_v > 0) {
      Draw draw(number, space);
      if (draw.problem().v_transposed && is_computed(draw, tested)) return draw;
      space.transposed_v = 0;
    }
    if (space.mixes_fp8) {
      Draw draw(number, space);
      if (mixes_fp8(draw.problem()) && is_computed(draw, tested)) return draw;
      space.mixes_fp8 = false;
    }
    for (bool RandomSpace::*const outputs : {&RandomSpace::max_logit, &RandomSpace::more_outputs}) {
      if (space.*outputs && is_computed(Draw(number, space), tested)) return Draw(number, space);
      space.*outputs = false;
    }
    if (asked.space.max_logit) {  // without the others
      space.max_logit = true;
      Draw draw(number, space);
      if (draw.problem().max_logit && is_computed(draw, tested)) return draw;
      space.max_logit = false;
    }
    Draw draw(number, space);
    if (attempt == last || is_computed(draw, tested)) return draw;
  }
}

}  // namespace

Status judge_random(const RandomTrials& asked, const Tested& tested, Findings& found) {
  // A GPU waits for references, so each thread computes its own. On the CPU the kernels use the threads.
  const bool shared_out = tested.plan.device.kind != DeviceKind::cpu;
  Tested one = tested;
  if (shared_out) one.plan.threads = 1;
  const auto name = [&](int64_t n) {
    return fmt::format("seed {}", asked.first_seed + static_cast<uint64_t>(n));
  };
  const auto judge_one = [&](int64_t n) {
    const uint64_t seed = asked.first_seed + static_cast<uint64_t>(n);
    Trial trial;
    trial.seed = seed;
    trial.name = name(n);
    trial.repeat = [&, seed](const std::string& kernel) {
      return repeat(seed, kernel, asked, tested.plan);
    };
    if (asked.backward) {
      const auto draw = drawn<RandomBackward>(seed, asked, tested);
      trial.pass = pass_of(draw);
      trial.prepare = [&] {
        return kernel_judge(draw.fill(one.plan.threads), true, one.plan, seed);
      };
      return judge_trial(trial, one, found);
    }
    if (one.plan.batch_invariant) return judge_company(trial, asked.space, one.plan, found);
    const auto draw = drawn<RandomDraw>(seed, asked, tested);
    const auto reference_of = [&](HostProblem& host) {
      Result<Reference> reference = compute_reference(host, one.plan.threads);
      if (reference.ok() && asked.space.only_e4m3) {
        reference->limits = gate_limits_of_few_rows(host.problem);
      }
      return reference;
    };
    trial.pass = pass_of(draw);
    trial.prepare = [&] { return kernel_judge(draw.fill(), reference_of, one.plan, seed); };
    return judge_trial(trial, one, found);
  };
  return for_each_trial("random", asked.problems, shared_out ? tested.plan.threads : 1, name,
                        judge_one);
}

nlohmann::ordered_json random_json(const RandomTrials& asked, const Findings& found) {
  nlohmann::ordered_json failures = failures_json(found);
  size_t n = 0;
  for (const Failure& failure : found.failures()) failures[n++]["seed"] = failure.seed;
  nlohmann::ordered_json json = {{"problems", asked.problems},
                                 {"first_seed", asked.first_seed},
                                 {"largest_seqlen", asked.space.largest_seqlen},
                                 {"largest_head_dim", asked.space.largest_head_dim},
                                 {"narrow", asked.narrow}};
  if (asked.space.caches) json["paged"] = true;
  if (asked.space.latent) json["latent"] = true;
  if (asked.space.transposed_v == 1) json["v_transposed"] = true;
  if (asked.space.most_heads > 0) json["most_heads"] = asked.space.most_heads;
  json["kernels"] = tallies_json(found);
  json["failures"] = failures;
  return json;
}

namespace {

// Runs each kernel that has not run often enough on a problem; `fill` makes its data once.
template <class Fill>
Status run_each_marked(const Result<std::vector<KernelVerdict>>& kernels, const Fill& fill,
                       const PlanOptions& plan, int64_t wanted,
                       std::map<std::string, int64_t>& ran) {
  if (!kernels.ok()) return kernels.status();
  decltype(fill()) host = Status();
  bool is_filled = false;
  for (const KernelVerdict& kernel : *kernels) {
    int64_t& count = ran[kernel.kernel];
    if (!kernel.refusal.empty() || count >= wanted) continue;
    if (!is_filled) host = fill();
    is_filled = true;
    if (!host.ok()) return host.status();
    FLASHCORE_RETURN_IF_ERROR(run_marked(*host, plan, kernel.kernel));
    ++count;
  }
  return {};
}

}  // namespace

Status run_random_marked(const RandomTrials& asked, const Tested& tested) {
  constexpr int64_t kDrawnForOne = 400;
  std::map<std::string, int64_t> ran;
  uint64_t seed = asked.first_seed;
  const auto enough = [&] {
    return !ran.empty() && std::all_of(ran.begin(), ran.end(), [&](const auto& one) {
      return one.second >= asked.problems;
    });
  };
  for (int64_t n = 0; n < kDrawnForOne * asked.problems && !enough(); ++n, ++seed) {
    if (asked.backward) {
      const auto draw = drawn<RandomBackward>(seed, asked, tested);
      FLASHCORE_RETURN_IF_ERROR(run_each_marked(
          asked_kernels(draw, tested), [&] { return draw.fill(tested.plan.threads); }, tested.plan,
          asked.problems, ran));
      continue;
    }
    const auto draw = drawn<RandomDraw>(seed, asked, tested);
    FLASHCORE_RETURN_IF_ERROR(run_each_marked(
        asked_kernels(draw, tested), [&] { return Result<HostProblem>(draw.fill()); }, tested.plan,
        asked.problems, ran));
  }
  return {};
}

}  // namespace flashcore::bench
