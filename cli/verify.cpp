// flashcore verify: the gate table, hard scores, random problems, then the sanitizers.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/text/numbers.hpp"
#include "bench/time/meter.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "cli/verify_random.hpp"
#include "cli/verify_scores.hpp"
#include "cli/verify_table.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kSanitized = 12;  // random problems of a kernel under each tool

struct Options {
  bench::PlanChoice choice;
  std::string shapes = "small,mission,long,wide,scores";
  std::string dtypes = "f16";
  std::string seeds = "0,1,2";
  int64_t random = 100;
  uint64_t random_seed = 0;
  int64_t largest_seqlen = bench::RandomSpace{}.largest_seqlen;
  int64_t largest_head_dim = bench::RandomSpace{}.largest_head_dim;
  bool sanitizers = false;
  bool only_run = false;
  std::string out;
};

Status check(const Options& options) {
  if (options.random < 0) return invalid("--random: is {}, wanted 0 or more", options.random);
  if (options.largest_seqlen < 1) {
    return invalid("--largest-seqlen: is {}, wanted 1 or more", options.largest_seqlen);
  }
  if (options.largest_head_dim < 1) {
    return invalid("--largest-head-dim: is {}, wanted 1 or more", options.largest_head_dim);
  }
  return {};
}

VerifyRandom random_part(const Options& options) {
  VerifyRandom random{.problems = options.random, .first_seed = options.random_seed, .space = {}};
  random.space.largest_seqlen = options.largest_seqlen;
  random.space.largest_head_dim = options.largest_head_dim;
  return random;
}

// This program under each tool, all at once: {kernel: {tool: {"passed", "ran", "findings",
// "first"}}}. Without compute-sanitizer there is a sentence instead.
Result<Json> run_sanitizers(const Options& options, const std::string& kernel,
                            const PlanOptions& plan) {
  std::vector<std::string> arguments = {"verify",        "--only-run",
                                        "--random",      std::to_string(kSanitized),
                                        "--random-seed", std::to_string(options.random_seed)};
  for (const auto& [name, value] :
       {std::pair<std::string, int64_t>{"--largest-seqlen", options.largest_seqlen},
        {"--largest-head-dim", options.largest_head_dim}}) {
    arguments.insert(arguments.end(), {name, std::to_string(value)});
  }
  arguments.insert(arguments.end(), {"--kernel", kernel, "--device", bench::to_text(plan.device)});
  bench::RunningSanitizers running = bench::start_sanitizers(arguments);
  Json results = Json::object();
  Status failure;
  for (size_t t = 0; t < running.size(); ++t) {
    const Result<std::string> output = running[t].get();
    if (!output.ok()) {
      failure = output.status();
      continue;
    }
    results[std::string(bench::kSanitizerTools[t])] =
        bench::sanitizer_evidence(bench::parse_sanitizer(*output, {kernel}).at(kernel));
  }
  if (!failure.ok()) return failure;
  return results;
}

// Prints a kernel's results; whether all passed.
bool report_sanitizers(const std::string& kernel, const Json& results, Session& session) {
  bool passed = true;
  for (const auto& [tool, result] : results.items()) {
    const bool one = result["passed"];
    passed = passed && one;
    session.line(fmt::format(
        "{} {}: {}", kernel, tool,
        one ? session.styled("passed", bench::Tone::good)
            : session.styled(result["ran"] ? "FAILED" : "did not end", bench::Tone::bad)));
    for (const auto& line : result["first"]) session.line("  " + line.get<std::string>());
  }
  return passed;
}

// --shapes without "scores" and "scores/PREFIX", and those prefixes.
struct Shapes {
  std::string of_table;
  std::vector<std::string> score_prefixes;
};

Shapes parse_shapes(const std::string& names) {
  constexpr std::string_view kScores = "scores";
  Shapes shapes;
  for (const std::string& name : bench::split(names, ',')) {
    if (name == kScores) {
      shapes.score_prefixes.emplace_back();
    } else if (name.starts_with("scores/")) {
      shapes.score_prefixes.push_back(name.substr(kScores.size() + 1));
    } else {
      shapes.of_table += (shapes.of_table.empty() ? "" : ",") + name;
    }
  }
  if (shapes.of_table.empty() && !shapes.score_prefixes.empty()) shapes.of_table = "none";
  return shapes;
}

// Kernels that the table, the hard scores or the random problems ran.
std::set<std::string> kernels_that_ran(const Json& table, const Json& scores, const Json& random) {
  std::set<std::string> kernels;
  for (const auto& row : table) {
    if (row["refusal"].get<std::string>().empty()) kernels.insert(row["kernel"]);
  }
  for (const Json& part : {scores, random}) {
    if (!part.is_object()) continue;
    for (const auto& one : part["kernels"]) {
      if (one["passed"].get<int64_t>() + one["failed"].get<int64_t>() > 0) {
        kernels.insert(one["kernel"]);
      }
    }
  }
  return kernels;
}

Result<ExitCode> execute(const Options& options, Session& session) {
  const auto seed_count = bench::split(options.seeds, ',').size();
  const Result<std::vector<int64_t>> seeds =
      bench::parse_numbers("--seeds", options.seeds, seed_count, "numbers such as 0,1,2");
  if (!seeds.ok()) return seeds.status();
  FLASHCORE_RETURN_IF_ERROR(check(options));
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(options.choice);
  if (!allowed.ok()) return allowed.status();
  const PlanOptions& plan = allowed->front();
  if (options.only_run) {
    FLASHCORE_RETURN_IF_ERROR(run_unjudged(random_part(options), plan));
    return ExitCode::ok;
  }
  if (options.sanitizers && plan.device.kind != DeviceKind::cuda) {
    return unsupported("--sanitizers: is given for the CPU, wanted a CUDA device");
  }

  bool failed = false;
  const Shapes shapes = parse_shapes(options.shapes);
  const Result<Json> table = verify_table({shapes.of_table, options.dtypes, *seeds}, plan, session);
  if (!table.ok()) return table.status();
  for (const auto& row : *table) failed = failed || !row["failure"].get<std::string>().empty();
  Json scores = nullptr, random = nullptr;
  if (!shapes.score_prefixes.empty()) {
    Result<Json> found = verify_scores(shapes.score_prefixes, plan, session);
    if (!found.ok()) return found.status();
    scores = std::move(*found);
    failed = failed || !scores["failures"].empty();
  }
  if (options.random > 0) {
    Result<Json> found = verify_random(random_part(options), plan, session);
    if (!found.ok()) return found.status();
    random = std::move(*found);
    failed = failed || !random["failures"].empty();
  }
  Json fingerprints = Json::object(), sanitizers = Json::object();
  for (const std::string& kernel : kernels_that_ran(*table, scores, random)) {
    fingerprints[kernel] = kernel_fingerprint(kernel, plan.device);
    if (!options.sanitizers) continue;
    const Result<Json> results = run_sanitizers(options, kernel, plan);
    if (!results.ok()) return results.status();
    failed = !report_sanitizers(kernel, *results, session) || failed;
    sanitizers[kernel] = *results;
  }
  if (!options.out.empty()) {
    const Result<std::unique_ptr<bench::Meter>> meter =
        bench::make_meter(plan.device, plan.threads);
    if (!meter.ok()) return meter.status();
    Json evidence = bench::new_evidence("verify");
    evidence["complete"] = true;
    evidence["device"] = (*meter)->environment();
    evidence["fingerprints"] = fingerprints;
    evidence["table"] = *table;
    evidence["scores"] = scores;
    evidence["random"] = random;
    evidence["sanitizers"] = sanitizers;
    FLASHCORE_RETURN_IF_ERROR(bench::check_evidence(evidence));
    FLASHCORE_RETURN_IF_ERROR(bench::write_evidence(options.out, evidence));
  }
  session.document({{"status", failed ? "check_failed" : "ok"},
                    {"device", bench::to_text(plan.device)},
                    {"table", *table},
                    {"scores", scores},
                    {"random", random},
                    {"sanitizers", sanitizers}});
  return failed ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace

Command verify_command() {
  auto options = std::make_shared<Options>();
  return {
      .name = "verify",
      .summary = "Check kernels against the correctness gates, hard scores and random problems",
      .examples =
          "  flashcore verify\n"
          "  flashcore verify --shapes small,mission --dtypes f32,f16,bf16\n"
          "  flashcore verify --shapes none --random 1000 --random-seed 42\n"
          "  flashcore verify --device cuda --kernel forward_sm90_throughput --sanitizers --out "
          "gates.json",
      .declare =
          [options](OptionSet& set) {
            set.group("What is verified");
            set.text(
                "--shapes", options->shapes,
                "Which of small, mission, long, wide, scores (scores/NAME: those that begin with "
                "NAME); or none",
                "NAMES");
            set.text("--dtypes", options->dtypes, "Types of the shapes, such as f32,f16,bf16",
                     "NAMES");
            set.text("--seeds", options->seeds, "Seeds of the shapes' inputs", "NUMBERS");
            set.number("--random", options->random, "Random problems after the shapes");
            set.number("--random-seed", options->random_seed,
                       "Seed of the first random problem; the others follow");
            set.number("--largest-seqlen", options->largest_seqlen,
                       "Longest sequence of the random problems");
            set.number("--largest-head-dim", options->largest_head_dim,
                       "Largest head dimension of the random problems");
            set.flag("--sanitizers", options->sanitizers,
                     "Also run random problems under compute-sanitizer's four tools");
            set.flag("--only-run", options->only_run,
                     "Run random problems without judging them: what the sanitizers watch");
            set.text("--out", options->out, "Write the results as evidence", "FILE");
            declare_plan_choice(set, options->choice);
          },
      .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli
