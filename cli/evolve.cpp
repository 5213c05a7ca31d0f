// flashcore evolve: a loop that improves a kernel. docs/evolve.md has the tutorial.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "bench/device/known_gpus.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/io/atomic_file.hpp"
#include "bench/text/numbers.hpp"
#include "cli/command.hpp"
#include "evolve/evaluate/compile.hpp"
#include "evolve/evaluate/compile_ahead.hpp"
#include "evolve/evaluate/stage_evaluator.hpp"
#include "evolve/loop/loop.hpp"
#include "evolve/loop/population.hpp"
#include "evolve/show/leaderboard.hpp"
#include "evolve/show/plot.hpp"
#include "evolve/task/folder.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostAhead = 1000;

struct EvolveOptions {
  std::string action, folder, id;
  std::string from, shapes;
  bool causal = false;
  std::string dtype = "f16";
  std::string gpu;
  std::optional<int64_t> heads_kv, seqlen_kv;
  evolve::RunPlan plan;
  int64_t evaluations = 20;
  double seconds = 0;
  std::optional<int64_t> seed;
  int64_t rows = 10;
  bool sanitizer = false;
  std::string plot, page, jsonl, out;
};

// Parses "1,8,512,64", or several of these separated by ';'.
Result<std::vector<evolve::CallShape>> parse_shapes(const EvolveOptions& options) {
  std::vector<evolve::CallShape> shapes;
  for (const std::string& text : bench::split(options.shapes, ';')) {
    const Result<std::vector<int64_t>> n =
        bench::parse_numbers("--shape", text, 4, "B,H,S,D such as 1,2,64,32");
    if (!n.ok()) return n.status();
    const auto& s = *n;
    if (*std::min_element(s.begin(), s.end()) < 1) {
      return invalid("--shape: is '{}', wanted extents of 1 or more", text);
    }
    shapes.push_back({s[0], s[1], options.heads_kv.value_or(s[1]), s[2],
                      options.seqlen_kv.value_or(s[2]), s[3],
                      static_cast<float>(1 / std::sqrt(static_cast<double>(s[3])))});
    if (shapes.back().heads_kv < 1 || s[1] % shapes.back().heads_kv != 0) {
      return invalid("--heads-kv: is {}, wanted a divisor of {}", shapes.back().heads_kv, s[1]);
    }
    if (shapes.back().seqlen_kv < 1) {
      return invalid("--seqlen-kv: is {}, wanted 1 or more", shapes.back().seqlen_kv);
    }
  }
  if (shapes.empty()) return invalid("--shape: is missing, wanted B,H,S,D such as 1,2,64,32");
  return shapes;
}

Result<ExitCode> init(const EvolveOptions& options, Session& session) {
  if (options.from.empty()) {
    return invalid("--from: is missing, wanted a .c, .cpp or .cu file, or ladder/NAME");
  }
  const Result<std::string> from = evolve::shipped_or_file(options.from);
  if (!from.ok()) return from.status();
  const Result<evolve::Tools> tools = evolve::find_tools();
  if (!tools.ok()) return tools.status();
  const bench::KnownGpu* gpu = nullptr;
  if (!options.gpu.empty()) {
    gpu = bench::find_gpu(options.gpu);
    if (gpu == nullptr) {
      return invalid("--gpu: is '{}', wanted one of {}", options.gpu, bench::known_gpu_names());
    }
  }
  const Result<std::vector<evolve::CallShape>> shapes = parse_shapes(options);
  if (!shapes.ok()) return shapes.status();
  FLASHCORE_RETURN_IF_ERROR(evolve::make_folder(
      options.folder, {.source = *from,
                       .shapes = *shapes,
                       .causal = options.causal,
                       .dtype = options.dtype == "bf16" ? DType::bf16 : DType::f16,
                       .gpu_runner = tools->gpu_runner,
                       .gpu = gpu}));
  const Result<evolve::RunFolder> folder = evolve::open_folder(options.folder);
  if (!folder.ok()) return folder.status();
  session.line(fmt::format("task   {}/task.json: {}, {}", options.folder, folder->task.language,
                           bench::counted(std::ssize(folder->seed.values), "parameter")));
  session.line(fmt::format("peak   {} ({})", bench::rate_text(folder->task.peak_flop_per_second),
                           folder->task.device["peak"].get<std::string>()));
  session.line(fmt::format("next   flashcore evolve run {} --proposer params", options.folder));
  session.document({{"status", "ok"}, {"task", folder->task_json}});
  return ExitCode::ok;
}

void tell(const evolve::Attempt& one, Session& session) {
  const bool valid = one.outcome == "valid";
  session.line(fmt::format("{:>5}  {:9}  {}", one.id, one.origin.operation,
                           valid ? evolve::result_text(one)
                                 : session.styled(evolve::result_text(one), bench::Tone::faint)));
}

Result<ExitCode> summarise(const evolve::Store& store, evolve::LoopEnd end, Session& session) {
  const Result<std::vector<evolve::Attempt>> attempts = store.attempts();
  if (!attempts.ok()) return attempts.status();
  const evolve::Attempt& best = *evolve::elites_of(*attempts, 1).front();
  const std::string why = end == evolve::LoopEnd::attempts  ? "all evaluations are done"
                          : end == evolve::LoopEnd::seconds ? "the time is over"
                                                            : "the proposer has nothing left";
  session.line(fmt::format("{}: {}; the best is attempt {}, {:.2f} times as fast as the seed", why,
                           evolve::outcomes_text(*attempts), best.id, best.score));
  Json list = Json::array();
  for (const evolve::Attempt& one : *attempts) {
    list.push_back({{"id", one.id}, {"outcome", one.outcome}, {"score", one.score}});
  }
  session.document(
      {{"status", "ok"}, {"ended", why}, {"best", evolve::attempt_json(best)}, {"attempts", list}});
  return ExitCode::ok;
}

// The plan of a new run; limits count from the folder's current state.
Result<evolve::RunPlan> new_plan(const EvolveOptions& options, evolve::Store& store) {
  if (options.evaluations < 1) {
    return invalid("--evaluations: is {}, wanted 1 or more", options.evaluations);
  }
  if (options.plan.elites < 1)
    return invalid("--elites: is {}, wanted 1 or more", options.plan.elites);
  if (!(options.seconds >= 0))
    return invalid("--seconds: is {}, wanted 0 or more", options.seconds);
  if (!(options.plan.proposer_seconds > 0)) {
    return invalid("--proposer-seconds: is {}, wanted more than 0", options.plan.proposer_seconds);
  }
  const Result<std::vector<evolve::Attempt>> attempts = store.attempts();
  if (!attempts.ok()) return attempts.status();
  evolve::RunPlan plan = options.plan;
  const bool is_first = attempts->empty();
  plan.last_attempt = (is_first ? 1 : attempts->back().id) + options.evaluations;
  if (options.seconds > 0) {
    plan.last_second = (is_first ? 0 : attempts->back().seconds) + options.seconds;
  }
  if (is_first || options.seed) {
    const auto random =
        options.seed ? static_cast<uint64_t>(*options.seed) : std::random_device{}();
    FLASHCORE_RETURN_IF_ERROR(store.set("random", std::to_string(random)));
  }
  FLASHCORE_RETURN_IF_ERROR(store.set("plan", evolve::plan_json(plan).dump()));
  FLASHCORE_RETURN_IF_ERROR(store.note("run", evolve::plan_json(plan).dump()));
  return plan;
}

Result<ExitCode> run(const EvolveOptions& options, bool resumes, Session& session) {
  const Result<evolve::RunFolder> folder = evolve::open_folder(options.folder);
  if (!folder.ok()) return folder.status();
  const Result<evolve::FolderLock> lock = evolve::FolderLock::take(options.folder);
  if (!lock.ok()) return lock.status();
  Result<evolve::Store> store = evolve::Store::open(folder->store);
  if (!store.ok()) return store.status();
  if (!resumes) {  // before anything is stored
    const auto tried = evolve::make_proposer(options.plan.proposer, options.plan.proposer_seconds);
    if (!tried.ok()) return tried.status();
  }
  const Result<evolve::RunPlan> plan =
      resumes ? evolve::stored_plan(*store) : new_plan(options, *store);
  if (!plan.ok()) return plan.status();
  const Result<std::unique_ptr<evolve::Proposer>> proposer =
      evolve::make_proposer(plan->proposer, plan->proposer_seconds);
  if (!proposer.ok()) return proposer.status();
  Result<evolve::Tools> tools = evolve::find_tools();
  if (!tools.ok()) return tools.status();
  tools->objects = folder->objects;
  tools->profiles = plan->profiles;
  evolve::StageEvaluator evaluator(folder->task, *tools);
  const evolve::LoopOptions loop{*plan, folder->task_json, folder->seed,
                                 [&](const evolve::Attempt& one) { tell(one, session); }};
  const Result<evolve::LoopEnd> end = evolve::run_loop(loop, *store, **proposer, evaluator);
  if (!end.ok()) return end.status();
  Result<ExitCode> code = summarise(*store, *end, session);
  if (!plan->proposer.starts_with(evolve::kReplay)) return code;
  const auto lines = evolve::replay_lines(plan->proposer.substr(evolve::kReplay.size()));
  const auto attempts = store->attempts();
  if (!lines.ok() || !attempts.ok()) return code;
  const std::string text = evolve::reproduction_text(*lines, *attempts);
  if (!text.empty()) session.line(text);
  return code;
}

// The programs that the proposer will request, as far as they are known beforehand: a replay's
// programs, or all values of the seed's parameters.
Result<std::vector<evolve::Ahead>> known_programs(const EvolveOptions& options,
                                                  const evolve::RunFolder& folder) {
  std::vector<evolve::Ahead> programs = {{"seed", folder.seed}};
  if (options.plan.proposer.starts_with("params")) {
    for (evolve::Program& one : evolve::all_values(folder.seed, kMostAhead)) {
      programs.push_back({evolve::values_text(one.values), std::move(one)});
    }
    return programs;
  }
  const auto proposer = evolve::make_proposer(options.plan.proposer, options.plan.proposer_seconds);
  if (!proposer.ok()) return proposer.status();
  if (options.plan.proposer != "ladder" && !options.plan.proposer.starts_with(evolve::kReplay)) {
    return invalid("--proposer: is '{}', wanted params, ladder or replay:FILE to compile ahead",
                   options.plan.proposer);
  }
  const evolve::Attempt seed{.id = 1, .program = folder.seed};
  evolve::Request request;
  request.parents = {&seed};
  for (request.attempt = 2;; ++request.attempt) {
    Result<std::optional<evolve::Proposal>> one = (*proposer)->propose(request);
    if (!one.ok()) return one.status();
    if (!*one) return programs;
    programs.push_back({(*one)->name, (*one)->program});
  }
}

Result<ExitCode> compile(const EvolveOptions& options, Session& session) {
  const Result<evolve::RunFolder> folder = evolve::open_folder(options.folder);
  if (!folder.ok()) return folder.status();
  if (!folder->task.is_gpu()) {
    return invalid("compile: the task is in {}, wanted one in CUDA: other compilers are fast",
                   folder->task.language);
  }
  Result<evolve::Tools> tools = evolve::find_tools();
  if (!tools.ok()) return tools.status();
  tools->objects = folder->objects;
  const Result<std::vector<evolve::Ahead>> programs = known_programs(options, *folder);
  if (!programs.ok()) return programs.status();
  int64_t failed = 0;
  const Status status = evolve::compile_ahead(
      folder->task, *programs, *tools, static_cast<int>(std::thread::hardware_concurrency()),
      [&](const evolve::Ahead& one, const evolve::Finding& finding) {
        failed += finding.ok() ? 0 : 1;
        if (!finding.ok()) session.line(fmt::format("{}: {}", one.name, finding.sentence));
      });
  FLASHCORE_RETURN_IF_ERROR(status);
  session.line(fmt::format("{} of {} compile; they are in {}", std::ssize(*programs) - failed,
                           bench::counted(std::ssize(*programs), "program"), folder->objects));
  session.document({{"status", "ok"}, {"programs", programs->size()}, {"failed", failed}});
  return ExitCode::ok;
}

Result<std::vector<evolve::Attempt>> stored_attempts(const EvolveOptions& options) {
  const Result<evolve::RunFolder> folder = evolve::open_folder(options.folder);
  if (!folder.ok()) return folder.status();
  std::error_code error;
  if (!std::filesystem::exists(folder->store, error)) {
    return invalid("{}: has no attempts yet, wanted flashcore evolve run first", options.folder);
  }
  const Result<evolve::Store> store = evolve::Store::open(folder->store);
  if (!store.ok()) return store.status();
  Result<std::vector<evolve::Attempt>> attempts = store->attempts();
  if (attempts.ok() && attempts->empty()) {
    return invalid("{}: has no attempts yet, wanted flashcore evolve run first", options.folder);
  }
  return attempts;
}

Result<ExitCode> show(const EvolveOptions& options, Session& session) {
  const Result<std::vector<evolve::Attempt>> attempts = stored_attempts(options);
  if (!attempts.ok()) return attempts.status();
  const std::string title =
      fmt::format("flashcore evolve: {}",
                  std::filesystem::path(options.folder + "/.").parent_path().filename().string());
  for (const auto& [path, text] :
       {std::pair{options.plot, options.plot.empty() ? "" : evolve::plot_svg(*attempts, title)},
        std::pair{options.page, options.page.empty() ? "" : evolve::report_html(*attempts, title)},
        std::pair{options.jsonl, options.jsonl.empty() ? "" : evolve::jsonl(*attempts)}}) {
    if (path.empty()) continue;
    FLASHCORE_RETURN_IF_ERROR(io::write_text(path, text));
  }
  session.line(evolve::outcomes_text(*attempts));
  session.line();
  session.table(evolve::leaderboard(*attempts, options.rows));
  session.line();
  for (const std::string& line : evolve::lineage(*attempts)) session.line(line);
  Json list = Json::array();
  for (const evolve::Attempt& one : *attempts) list.push_back(evolve::attempt_json(one));
  session.document({{"status", "ok"}, {"attempts", list}});
  return ExitCode::ok;
}

// Returns the attempt with this ID, or the best one.
Result<evolve::Attempt> named(const EvolveOptions& options) {
  Result<std::vector<evolve::Attempt>> attempts = stored_attempts(options);
  if (!attempts.ok()) return attempts.status();
  if (options.id.empty()) {
    const auto best = evolve::elites_of(*attempts, 1);
    if (best.empty()) return invalid("{}: has no valid attempt", options.folder);
    return *best.front();
  }
  int64_t id = 0;
  const auto [end, error] =
      std::from_chars(options.id.data(), options.id.data() + options.id.size(), id);
  for (evolve::Attempt& one : *attempts) {
    const bool whole = error == std::errc() && end == options.id.data() + options.id.size();
    if (whole && one.id == id && !one.hash.empty()) return std::move(one);
  }
  return invalid("ID: is '{}', wanted an attempt with a program", options.id);
}

Result<ExitCode> export_program(const EvolveOptions& options, Session& session) {
  const Result<evolve::Attempt> attempt = named(options);
  if (!attempt.ok()) return attempt.status();
  const std::string text = evolve::text_of(attempt->program);
  if (options.out.empty()) {
    session.line(text);
  } else {
    FLASHCORE_RETURN_IF_ERROR(io::write_text(options.out, text));
    session.line(fmt::format("wrote  {}: attempt {}, {}", options.out, attempt->id,
                             evolve::result_text(*attempt)));
  }
  session.document({{"status", "ok"}, {"attempt", evolve::attempt_json(*attempt)}, {"text", text}});
  return ExitCode::ok;
}

// Repeats every stage with new seeds, timed in turns with the seed.
Result<ExitCode> verify(const EvolveOptions& options, Session& session) {
  const Result<evolve::RunFolder> folder = evolve::open_folder(options.folder);
  if (!folder.ok()) return folder.status();
  const Result<evolve::Attempt> attempt = named(options);
  if (!attempt.ok()) return attempt.status();
  Result<evolve::Tools> tools = evolve::find_tools();
  if (!tools.ok()) return tools.status();
  tools->objects = folder->objects;
  tools->profiles = options.plan.profiles;
  tools->sanitizes = options.sanitizer;
  evolve::StageEvaluator evaluator(folder->task, *tools);
  const evolve::Incumbent seed{folder->seed, 1};
  const Result<evolve::Evaluation> found = evaluator.evaluate(attempt->program, &seed);
  if (!found.ok()) return found.status();
  const bool passed = found->outcome == evolve::Outcome::valid;
  const Json result = {{"status", passed ? "ok" : "check_failed"},
                       {"id", attempt->id},
                       {"hash", attempt->hash},
                       {"outcome", evolve::to_string(found->outcome)},
                       {"stage", found->stage},
                       {"reason", found->reason},
                       {"score", found->score},
                       {"noise", found->noise},
                       {"stored_score", attempt->score},
                       {"task", folder->task_json},
                       {"evidence", found->evidence}};
  if (!options.out.empty()) FLASHCORE_RETURN_IF_ERROR(bench::write_json(options.out, result));
  session.line(passed
                   ? fmt::format("attempt {}: passed; {:.2f} times as fast as the seed (noise "
                                 "{:.1f}%), {:.2f} when it was found",
                                 attempt->id, found->score, 100 * found->noise, attempt->score)
                   : fmt::format("attempt {}: {} in {}: {}", attempt->id,
                                 evolve::to_string(found->outcome), found->stage, found->reason));
  session.document(result);
  return passed ? ExitCode::ok : ExitCode::check_failed;
}

Result<ExitCode> execute_evolve(const EvolveOptions& options, Session& session) {
  if (options.folder.empty()) return invalid("DIR: is missing, wanted the folder of a run");
  if (!options.id.empty() && options.action != "export" && options.action != "verify") {
    return invalid("ID: is '{}', wanted it with export or verify only", options.id);
  }
  if (options.action == "init") return init(options, session);
  if (options.action == "run") return run(options, false, session);
  if (options.action == "resume") return run(options, true, session);
  if (options.action == "compile") return compile(options, session);
  if (options.action == "show") return show(options, session);
  if (options.action == "export") return export_program(options, session);
  if (options.action == "verify") return verify(options, session);
  return invalid("ACTION: is '{}', wanted init, compile, run, resume, show, export or verify",
                 options.action);
}

}  // namespace

Command evolve_command() {
  auto options = std::make_shared<EvolveOptions>();
  return {
      .name = "evolve",
      .summary = "Improve a kernel in a loop, gates first",
      .examples =
          "  flashcore evolve init work --from examples/evolve/attention.c --shape 1,2,128,64\n"
          "  flashcore evolve run work --proposer params --evaluations 30\n"
          "  flashcore evolve resume work\n"
          "  flashcore evolve init climb --from ladder/01_scalar --shape 1,8,512,64\n"
          "  flashcore evolve compile climb --proposer ladder\n"
          "  flashcore evolve run climb --proposer ladder\n"
          "  flashcore evolve show work --plot run.svg --page run.html\n"
          "  flashcore evolve verify work 17\n"
          "  flashcore evolve export work 17 --out winner.c",
      .declare =
          [options](OptionSet& set) {
            set.positional("ACTION", options->action,
                           "init, compile, run, resume, show, export or verify");
            set.positional("DIR", options->folder, "The folder of the run");
            set.positional("ID", options->id, "export, verify: an attempt (default: the best)");
            set.group("init");
            set.text("--from", options->from,
                     "The seed: a kernel in C, C++ or CUDA, or one of this library as ladder/NAME",
                     "FILE");
            set.text("--shape", options->shapes, "Shapes to win on: B,H,S,D, more after ';'",
                     "SHAPES");
            set.number("--heads-kv", options->heads_kv, "Heads of k and v (default: as q)");
            set.number("--seqlen-kv", options->seqlen_kv, "Rows of k and v (default: as q)");
            set.flag("--causal", options->causal, "Query i sees no key after i + Skv - Sq");
            set.choice("--dtype", options->dtype, {"f16", "bf16"},
                       "Type of the tensors of a kernel in CUDA");
            set.text("--gpu", options->gpu,
                     "The GPU that a kernel in CUDA is for, where it is not the one here: " +
                         bench::known_gpu_names(),
                     "NAME");
            set.group("run");
            set.text("--proposer", options->plan.proposer,
                     "params, params:random, params:local, params:evolution, replay:FILE, ladder, "
                     "or a program with its arguments",
                     "PROPOSER");
            set.number("--evaluations", options->evaluations, "Attempts of this run");
            set.number("--seconds", options->seconds, "End after these; 0: no limit");
            set.choice("--preset", options->plan.preset, {"free", "insight", "full"},
                       "What a proposer is told");
            set.number("--elites", options->plan.elites, "Programs that are kept as parents");
            set.number("--seed", options->seed, "Seed of the choices (default: a random one)");
            set.number("--proposer-seconds", options->plan.proposer_seconds,
                       "Longest time of one proposal");
            set.flag("--profile", options->plan.profiles,
                     "run, verify: counters of ncu for each GPU candidate that wins");
            set.group("show, export, verify");
            set.flag("--sanitizer", options->sanitizer,
                     "verify: compute-sanitizer's four tools too, in CUDA");
            set.number("--rows", options->rows, "show: rows of the leaderboard");
            set.text("--plot", options->plot, "show: the run as a picture", "SVG");
            set.text("--page", options->page, "show: the run as a page that opens offline", "HTML");
            set.text("--jsonl", options->jsonl, "show: every attempt, one per line", "FILE");
            set.text("--out", options->out, "export: the program; verify: the evidence", "FILE");
          },
      .execute = [options](Session& session) { return execute_evolve(*options, session); }};
}

}  // namespace flashcore::cli
