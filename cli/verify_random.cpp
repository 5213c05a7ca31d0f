#include "cli/verify_random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "bench/cases/batch_company.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/gate/gates.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/text/progress.hpp"
#include "bench/text/table.hpp"
#include "bench/text/terminal.hpp"
#include "cli/verify_kernel.hpp"
#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Failure {
  uint64_t seed;
  std::string kernel, what, problem;
};

// What all problems came to; several threads add to it.
struct Found {
  std::mutex mutex;
  std::map<std::string, Tally> tallies;
  std::vector<Failure> failures;
  Status error;  // the first of the program's own, which ends it
};

bool any_computes(const std::vector<KernelVerdict>& kernels) {
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const KernelVerdict& one) { return one.refusal.empty(); });
}

// All kernels on one random problem. Without a kernel that computes it there is no data.
Status verify_seed(uint64_t seed, const bench::RandomSpace& space, const PlanOptions& plan,
                   Found& found) {
  const bench::RandomDraw draw(seed, space);
  const Result<std::vector<KernelVerdict>> kernels =
      bench::kernels_under_test(draw.problem(), plan, true);
  if (!kernels.ok()) return kernels.status();
  bench::HostProblem host;
  bench::Reference reference;
  if (any_computes(*kernels)) {
    host = draw.fill();
    Result<bench::Reference> computed = bench::compute_reference(host, plan.threads);
    if (!computed.ok()) return computed.status();
    reference = std::move(*computed);
  }
  for (const KernelVerdict& kernel : *kernels) {
    if (!kernel.refusal.empty()) {
      const std::scoped_lock lock(found.mutex);
      found.tallies[kernel.kernel].refuse(kernel.refusal);
      continue;
    }
    const bench::Verdict verdict = judge_kernel(host, reference, plan, kernel.kernel);
    const std::scoped_lock lock(found.mutex);
    found.tallies[kernel.kernel].add(verdict, fmt::format("seed {}", seed));
    if (!verdict.passed) {
      found.failures.push_back(
          {seed, kernel.kernel, verdict.failure, bench::describe(host.problem)});
    }
  }
  return {};
}

// The chosen kernel on one entry in several batches: one kernel, and the same bits.
Status verify_company(uint64_t seed, const bench::RandomSpace& space, const PlanOptions& plan,
                      Found& found) {
  const bench::BatchCompany company(seed, space.largest_seqlen, space.largest_head_dim);
  std::string kernel, failure, where;
  std::vector<double> first;
  for (size_t batch = 0; batch < company.batches() && failure.empty(); ++batch) {
    const Problem problem = company.problem(batch);
    const Result<Plan> chosen = make_plan(problem, plan);
    if (!chosen.ok()) {
      if (chosen.status().code() != StatusCode::unsupported) return chosen.status();
      const std::scoped_lock lock(found.mutex);
      const std::string name = plan.kernel.empty() ? "none" : plan.kernel;
      found.tallies[name].refuse(chosen.status().message());
      return {};
    }
    where = company.describe(batch);
    if (batch == 0) kernel = chosen->kernel();
    if (chosen->kernel() != kernel) {
      failure = fmt::format("{}: runs {} alone, {} here", where, kernel, chosen->kernel());
      break;
    }
    bench::HostProblem host = company.fill(batch);
    FLASHCORE_RETURN_IF_ERROR(run_kernel(host, plan, kernel));
    const std::vector<double> results = company.results(host, batch);
    if (batch == 0) first = results;
    if (std::memcmp(results.data(), first.data(), first.size() * sizeof(double)) != 0) {
      failure = fmt::format("{}: different bits than alone", where);
    }
  }
  bench::Verdict verdict;
  verdict.passed = failure.empty();
  verdict.failure = failure;
  const std::scoped_lock lock(found.mutex);
  found.tallies[kernel].add(verdict, fmt::format("seed {}", seed));
  if (!verdict.passed) {
    found.failures.push_back({seed, kernel, failure, bench::describe(company.problem(0))});
  }
  return {};
}

void verify_all(const VerifyRandom& asked, const PlanOptions& plan, Found& found) {
  bench::Progress progress(bench::Progress::usual(), "random", asked.problems);
  // A GPU waits for references: each thread computes its own. On the CPU the kernels have them.
  const bool shared_out = plan.device.kind == DeviceKind::cuda;
  PlanOptions one = plan;
  if (shared_out) one.threads = 1;
  cpu::parallel_for(asked.problems, shared_out ? plan.threads : 1, [&](int64_t n) {
    const uint64_t seed = asked.first_seed + static_cast<uint64_t>(n);
    {
      const std::scoped_lock lock(found.mutex);
      if (!found.error.ok()) return;
      progress.step(fmt::format("seed {}", seed));
    }
    const Status status = one.batch_invariant ? verify_company(seed, asked.space, one, found)
                                              : verify_seed(seed, asked.space, one, found);
    const std::scoped_lock lock(found.mutex);
    if (!status.ok() && found.error.ok()) found.error = status;
    progress.advance();
  });
}

std::string repeat(const Failure& failure, const VerifyRandom& asked, const PlanOptions& plan) {
  constexpr bench::RandomSpace kUsual;
  std::string line =
      fmt::format("flashcore verify --shapes none --random 1 --random-seed {}", failure.seed);
  // In company the choice is part of what is verified.
  if (!plan.batch_invariant || !plan.kernel.empty()) line += " --kernel " + failure.kernel;
  if (asked.space.largest_seqlen != kUsual.largest_seqlen) {
    line += fmt::format(" --largest-seqlen {}", asked.space.largest_seqlen);
  }
  if (asked.space.largest_head_dim != kUsual.largest_head_dim) {
    line += fmt::format(" --largest-head-dim {}", asked.space.largest_head_dim);
  }
  if (plan.batch_invariant) line += " --batch-invariant";
  if (plan.device.kind == DeviceKind::cuda) line += " --device " + bench::to_text(plan.device);
  return line;
}

}  // namespace

Result<Json> verify_random(const VerifyRandom& asked, const PlanOptions& plan, Session& session) {
  Found found;
  verify_all(asked, plan, found);
  if (!found.error.ok()) return found.error;
  std::sort(found.failures.begin(), found.failures.end(),
            [](const Failure& a, const Failure& b) { return a.seed < b.seed; });

  bench::Table table({{"random problems"},
                      {"passed", bench::Align::right},
                      {"failed", bench::Align::right},
                      {"refused", bench::Align::right},
                      {"gate"}});
  Json kernels = Json::array();
  for (const auto& [kernel, tally] : found.tallies) {
    table.row({kernel, std::to_string(tally.passed), std::to_string(tally.failed),
               std::to_string(tally.refused), tally.mark(session)});
    kernels.push_back({{"kernel", kernel},
                       {"passed", tally.passed},
                       {"failed", tally.failed},
                       {"refused", tally.refused},
                       {"max_scaled_error", tally.max_scaled_error},
                       {"relative_error", tally.relative_error},
                       {"lse_error", tally.lse_error}});
  }
  session.line();
  for (const std::string& line : table.lines()) session.line(line);
  session.line(fmt::format("seeds {} to {}", asked.first_seed,
                           asked.first_seed + static_cast<uint64_t>(asked.problems) - 1));
  Json failures = Json::array();
  for (const Failure& failure : found.failures) {
    const std::string again = repeat(failure, asked, plan);
    session.line(fmt::format("failed: {}: {}", failure.kernel, failure.what));
    session.line("  " + failure.problem);
    session.line("  repeat: " + again);
    failures.push_back({{"seed", failure.seed},
                        {"kernel", failure.kernel},
                        {"failure", failure.what},
                        {"problem", failure.problem},
                        {"repeat", again}});
  }
  return Json{{"problems", asked.problems},
              {"first_seed", asked.first_seed},
              {"largest_seqlen", asked.space.largest_seqlen},
              {"largest_head_dim", asked.space.largest_head_dim},
              {"kernels", kernels},
              {"failures", failures}};
}

Status run_unjudged(const VerifyRandom& asked, const PlanOptions& plan) {
  constexpr int64_t kDrawnForOne = 400;
  std::map<std::string, int64_t> ran;
  uint64_t seed = asked.first_seed;
  const auto enough = [&] {
    return !ran.empty() && std::all_of(ran.begin(), ran.end(), [&](const auto& one) {
      return one.second >= asked.problems;
    });
  };
  for (int64_t n = 0; n < kDrawnForOne * asked.problems && !enough(); ++n, ++seed) {
    const bench::RandomDraw draw(seed, asked.space);
    const Result<std::vector<KernelVerdict>> kernels =
        bench::kernels_under_test(draw.problem(), plan, true);
    if (!kernels.ok()) return kernels.status();
    bench::HostProblem host;
    if (any_computes(*kernels)) host = draw.fill();
    for (const KernelVerdict& kernel : *kernels) {
      int64_t& count = ran[kernel.kernel];
      if (!kernel.refusal.empty() || count >= asked.problems) continue;
      bench::write_text(stdout, bench::sanitizer_mark(kernel.kernel, true) + "\n");
      std::fflush(stdout);
      FLASHCORE_RETURN_IF_ERROR(run_kernel(host, plan, kernel.kernel));
      bench::write_text(stdout, bench::sanitizer_mark(kernel.kernel, false) + "\n");
      std::fflush(stdout);
      ++count;
    }
  }
  return {};
}

}  // namespace flashcore::cli
