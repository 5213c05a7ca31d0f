// flashcore verify: the gate table, hard scores, random problems, then the sanitizers.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/report/tables.hpp"
#include "bench/text/numbers.hpp"
#include "bench/verify/errors.hpp"
#include "bench/verify/gate_table.hpp"
#include "bench/verify/random.hpp"
#include "bench/verify/scores.hpp"
#include "bench/verify/verified.hpp"
#include "cli/command.hpp"
#include "cli/plan_options.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBackwardShapes = "small,mission,long,wide";
constexpr int64_t kSanitized = 12;  // random problems per kernel under each tool

struct VerifyOptions {
  bench::PlanChoice choice;
  std::string shapes = "small,mission,long,wide,scores";
  std::string dtypes = "f16";
  std::string seeds = "0,1,2";
  int64_t random = 100;
  uint64_t random_seed = 0;
  int64_t largest_seqlen = bench::RandomSpace{}.largest_seqlen;
  int64_t largest_head_dim = bench::RandomSpace{}.largest_head_dim;
  bool narrow = false;
  int64_t most_heads = bench::RandomSpace{}.most_heads;
  bool sanitizers = false;
  bool only_run = false;
  bool backward = false;
  bool paged = false;
  bool latent = false;
  bool v_transposed = false;
  std::string errors;
  int64_t seqlen = 2048;
  std::string out;
};

constexpr int64_t kLongestErrors = 65536;

Status check(const VerifyOptions& options) {
  if (options.seqlen < 1 || options.seqlen > kLongestErrors) {
    return invalid("--seqlen: is {}, wanted 1 to {}", options.seqlen, kLongestErrors);
  }
  if (options.random < 0) return invalid("--random: is {}, wanted 0 or more", options.random);
  if (options.largest_seqlen < 1) {
    return invalid("--largest-seqlen: is {}, wanted 1 or more", options.largest_seqlen);
  }
  if (options.largest_head_dim < 1) {
    return invalid("--largest-head-dim: is {}, wanted 1 or more", options.largest_head_dim);
  }
  if (options.most_heads < 0) {
    return invalid("--most-heads: is {}, wanted 0 or more", options.most_heads);
  }
  if (options.most_heads > 0 && options.choice.batch_invariant) {
    return invalid("--most-heads: is {}, wanted it only without --batch-invariant",
                   options.most_heads);
  }
  if (options.backward && options.shapes.find("scores") != std::string::npos &&
      options.shapes != VerifyOptions{}.shapes) {
    return invalid("--shapes: is '{}', wanted no scores with --backward", options.shapes);
  }
  if (options.backward && options.choice.batch_invariant) {
    return invalid("--batch-invariant: is given, wanted it only without --backward");
  }
  if (options.narrow && (options.choice.kernel.empty() || options.choice.batch_invariant)) {
    return invalid("--narrow: is given, wanted it only with --kernel, without --batch-invariant");
  }
  if (options.paged && (options.backward || options.choice.batch_invariant)) {
    return invalid("--paged: is given, wanted it without --backward and --batch-invariant");
  }
  if (options.latent && options.backward) {
    return invalid("--latent: is given, wanted it without --backward");
  }
  if (!options.backward && options.choice.any_order) {
    return invalid("--any-order: is given, wanted it only with --backward");
  }
  return {};
}

bench::RandomTrials random_part(const VerifyOptions& options) {
  bench::RandomTrials random{
      .problems = options.random, .first_seed = options.random_seed, .space = {}};
  random.space.largest_seqlen = options.largest_seqlen;
  random.space.largest_head_dim = options.largest_head_dim;
  random.space.most_heads = options.most_heads;
  random.space.caches = options.paged;
  random.space.latent = options.latent;
  random.space.more_outputs = random.space.max_logit = random.space.mixes_fp8 = !options.backward;
  random.space.transposed_v = options.backward ? 0 : options.v_transposed ? 1 : 0.25;
  random.backward = options.backward;
  random.narrow = options.narrow;
  random.space.only_e4m3 = options.narrow && options.dtypes == to_string(DType::f8e4m3);
  return random;
}

// Runs this program under each tool, all at once: {tool: {"passed", "ran", "findings", "first"}}.
// Prints a sentence instead if compute-sanitizer is missing.
Result<Json> run_sanitizers(const VerifyOptions& options, const std::string& kernel,
                            const PlanOptions& plan) {
  std::vector<std::string> arguments = {"verify", "--only-run"};
  if (options.backward) arguments.emplace_back("--backward");
  if (options.paged) arguments.emplace_back("--paged");
  if (options.latent) arguments.emplace_back("--latent");
  if (options.v_transposed) arguments.emplace_back("--v-transposed");
  if (options.choice.any_order) arguments.emplace_back("--any-order");
  if (options.narrow) arguments.emplace_back("--narrow");
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>{"--random", std::to_string(kSanitized)},
        {"--random-seed", std::to_string(options.random_seed)},
        {"--largest-seqlen", std::to_string(options.largest_seqlen)},
        {"--largest-head-dim", std::to_string(options.largest_head_dim)},
        {"--most-heads", std::to_string(options.most_heads)},
        {"--kernel", kernel},
        {"--dtypes", options.dtypes},
        {"--device", bench::to_text(plan.device)}}) {
    arguments.insert(arguments.end(), {name, value});
  }
  Json results = Json::object();
  FLASHCORE_RETURN_IF_ERROR(bench::collect_sanitizers(
      bench::start_sanitizers(arguments), {kernel}, [](std::string_view) {}, results));
  return results[kernel];
}

// Prints a kernel's results; returns whether all passed.
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

// --shapes: rows of the table of gates, and prefixes of the names of problems with hard scores.
struct Shapes {
  std::vector<bench::Case> table;
  std::vector<bench::ScoreCase> scores;
};

Result<std::vector<DType>> parse_dtypes(const std::string& names) {
  std::vector<DType> dtypes;
  for (const std::string& name : bench::split(names, ',')) {
    const std::optional<DType> dtype = dtype_from_string(name);
    if (!dtype) return invalid("--dtypes: is '{}', wanted f32, f16, bf16, f8e4m3, f8e5m2", name);
    dtypes.push_back(*dtype);
  }
  return dtypes;
}

Result<Shapes> parse_shapes(const std::string& names, const std::string& dtype_names) {
  constexpr std::string_view kScores = "scores";
  const Result<std::vector<DType>> dtypes = parse_dtypes(dtype_names);
  if (!dtypes.ok()) return dtypes.status();
  const std::vector<bench::Case> all = bench::gate_shapes();
  Shapes shapes;
  std::vector<std::string> prefixes;
  for (const std::string& name : bench::split(names, ',')) {
    if (name == "none") continue;
    if (name == kScores || name.starts_with("scores/")) {
      prefixes.push_back(name.substr(std::min(kScores.size() + 1, name.size())));
      continue;
    }
    const auto shape = std::find_if(all.begin(), all.end(),
                                    [&](const bench::Case& one) { return one.name == name; });
    if (shape == all.end()) {
      return invalid("--shapes: is '{}', wanted small, mission, long, wide, scores or none", name);
    }
    for (const DType dtype : *dtypes) {
      for (const bool causal : {false, true}) {
        shapes.table.push_back(*shape);
        shapes.table.back().dtype = dtype;
        shapes.table.back().causal = causal;
      }
    }
  }
  Result<std::vector<bench::ScoreCase>> scores = bench::score_cases_of(prefixes);
  if (!scores.ok()) return scores.status();
  shapes.scores = std::move(*scores);
  return shapes;
}

// Prints the hard scores or the random problems; returns whether all passed.
bool print_part(const std::string& heading, const Json& part, Session& session) {
  session.line();
  session.table(bench::tally_table(heading, part));
  if (part.contains("first_seed")) {
    const auto first = part["first_seed"].get<uint64_t>();
    session.line(
        fmt::format("seeds {} to {}", first, first + part["problems"].get<uint64_t>() - 1));
  }
  for (const std::string& line : bench::verify_failures(part)) session.line(line);
  return part["failures"].empty();
}

bool print_table(const std::vector<bench::GateRow>& rows, Session& session) {
  bool passed = true;
  if (!rows.empty()) session.table(bench::gate_table(rows));
  for (const auto& [one, kernel, tally] : rows) {
    passed = passed && tally.failed == 0;
    if (tally.failed > 0) session.line(fmt::format("failed: {}: {}", kernel, tally.failure));
  }
  return passed;
}

// Judges the table, the hard scores and the random problems, and prints each when it is done.
// Returns whether all passed.
Result<bool> judge_all(const VerifyOptions& options, const Shapes& shapes,
                       const std::vector<int64_t>& seeds, const bench::Tested& tested,
                       bench::Verified& found, Session& session) {
  const Result<std::vector<bench::GateRow>> rows =
      bench::judge_table(shapes.table, seeds, tested, options.backward);
  if (!rows.ok()) return rows.status();
  bool passed = print_table(*rows, session);
  found.table = bench::gate_rows_json(*rows, seeds);
  for (const auto& [one, kernel, tally] : *rows) found.add(kernel, tally);
  if (!shapes.scores.empty()) {
    bench::Findings findings;
    Result<Json> scores = bench::judge_scores(shapes.scores, tested, findings);
    if (!scores.ok()) return scores.status();
    found.scores = std::move(*scores);
    found.add(findings);
    passed = print_part("hard scores", found.scores, session) && passed;
  }
  if (options.random > 0) {
    bench::Findings findings;
    const Status status = bench::judge_random(random_part(options), tested, findings);
    if (!status.ok()) return status;
    found.random = bench::random_json(random_part(options), findings);
    found.add(findings);
    passed = print_part("random problems", found.random, session) && passed;
  }
  return passed;
}

// --errors
Result<ExitCode> measure_errors(const VerifyOptions& options, const PlanOptions& plan,
                                Session& session) {
  if (options.errors != "fp8" && options.errors != "quantization") {
    return invalid("--errors: is '{}', wanted fp8 or quantization", options.errors);
  }
  const bool of_kernels = options.errors == "fp8";
  if (of_kernels && plan.device.kind == DeviceKind::cpu) {
    return unsupported("--errors: is fp8 on a CPU, wanted a GPU with kernels of fp8");
  }
  const bench::Say say = [&](const std::string& line) { session.line(line); };
  const Result<Json> evidence = of_kernels ? bench::fp8_errors(plan, options.seqlen, say)
                                           : bench::quantization_errors(plan.threads, say);
  if (!evidence.ok()) return evidence.status();
  if (!options.out.empty()) {
    FLASHCORE_RETURN_IF_ERROR(bench::check_evidence(*evidence));
    FLASHCORE_RETURN_IF_ERROR(bench::write_evidence(options.out, *evidence));
  }
  Json document = {{"status", "ok"}};
  document.update(*evidence);
  session.document(document);
  return ExitCode::ok;
}

Result<ExitCode> execute_verify(const VerifyOptions& options, Session& session) {
  const auto seed_count = bench::split(options.seeds, ',').size();
  const Result<std::vector<int64_t>> seeds =
      bench::parse_numbers("--seeds", options.seeds, seed_count, "numbers such as 0,1,2");
  if (!seeds.ok()) return seeds.status();
  FLASHCORE_RETURN_IF_ERROR(check(options));
  const Result<std::vector<PlanOptions>> allowed = bench::allowed_devices(options.choice);
  if (!allowed.ok()) return allowed.status();
  const PlanOptions& plan = allowed->front();
  const bench::Tested tested{.plan = plan};
  if (!options.errors.empty()) return measure_errors(options, plan, session);
  if (options.only_run) {
    FLASHCORE_RETURN_IF_ERROR(bench::run_random_marked(random_part(options), tested));
    return ExitCode::ok;
  }
  if (options.sanitizers && plan.device.kind != DeviceKind::cuda) {
    return unsupported("--sanitizers: is given for the CPU, wanted a CUDA device");
  }
  // Hard scores test the forward pass only.
  const bool usual_shapes = options.shapes == VerifyOptions{}.shapes;
  const Result<Shapes> shapes = parse_shapes(
      options.backward && usual_shapes ? kBackwardShapes : options.shapes, options.dtypes);
  if (!shapes.ok()) return shapes.status();
  if (shapes->table.empty() && shapes->scores.empty() && options.random == 0) {
    return invalid("--random: is 0 with --shapes {}, wanted something to check", options.shapes);
  }

  bench::Verified found;
  found.backward = options.backward;
  const Result<bool> judged = judge_all(options, *shapes, *seeds, tested, found, session);
  if (!judged.ok()) return judged.status();
  bool passed = *judged;
  if (options.sanitizers) {
    if (found.ran.empty()) {
      return invalid(
          "--sanitizers: no kernel computed a problem, wanted --shapes or --random of some");
    }
    for (const auto& [kernel, launched] : found.ran) {
      const Result<Json> results = run_sanitizers(options, kernel, plan);
      if (!results.ok()) return results.status();
      passed = report_sanitizers(kernel, *results, session) && passed;
      found.sanitizers[kernel] = *results;
    }
  }
  if (!options.out.empty()) {
    const Result<Json> evidence = bench::verify_evidence(found, plan);
    if (!evidence.ok()) return evidence.status();
    FLASHCORE_RETURN_IF_ERROR(bench::write_evidence(options.out, *evidence));
  }
  session.document({{"status", passed ? "ok" : "check_failed"},
                    {"device", bench::to_text(plan.device)},
                    {"pass", options.backward ? "backward" : "forward"},
                    {"table", found.table},
                    {"scores", found.scores},
                    {"random", found.random},
                    {"sanitizers", found.sanitizers}});
  return passed ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command verify_command() {
  auto options = std::make_shared<VerifyOptions>();
  return {
      .name = "verify",
      .summary = "Check kernels against the correctness gates, hard scores and random problems",
      .examples =
          "  flashcore verify\n"
          "  flashcore verify --shapes small,mission --dtypes f32,f16,bf16\n"
          "  flashcore verify --shapes none --random 1000 --random-seed 42\n"
          "  flashcore verify --backward --shapes none --random 1000\n"
          "  flashcore verify --backward --kernel backward_sm90 --narrow --random 5000\n"
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
            set.flag("--narrow", options->narrow,
                     "Draw problems that --kernel refuses again with fewer features, until it "
                     "takes them");
            set.number("--most-heads", options->most_heads,
                       "Most heads of queries of a random problem, in all sequences together; "
                       "0: no limit");
            set.flag(
                "--paged", options->paged,
                "Random problems have caches: pages, padding on the left, fp8 under a wider Q");
            set.flag(
                "--latent", options->latent,
                "Random problems have rows of 576 columns, whose first 512 are V, for all heads");
            set.flag("--v-transposed", options->v_transposed,
                     "Each fp8 V in one piece of the random problems is stored transposed, where "
                     "--kernel takes it; otherwise a quarter of them");
            set.flag("--backward", options->backward, "The backward pass: gradients");
            set.flag("--any-order", options->choice.any_order,
                     "Gradients: sums may be added in any order, so bits may differ");
            set.flag("--sanitizers", options->sanitizers,
                     "Also run random problems under compute-sanitizer's four tools");
            set.flag("--only-run", options->only_run,
                     "Run random problems without judging them: what the sanitizers watch");
            set.text("--errors", options->errors,
                     "Measure errors by kind of data instead: of the kernels of fp8, or of "
                     "quantization",
                     "NAME");
            set.number("--seqlen", options->seqlen, "Queries and keys of --errors fp8");
            set.text("--out", options->out, "Write the results as evidence", "FILE");
            declare_plan_choice(set, options->choice);
          },
      .execute = [options](Session& session) { return execute_verify(*options, session); }};
}

}  // namespace flashcore::cli
