// flashcore ladder: every rung through the gates, then timed beside the peers and the ceilings.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "bench/cases.hpp"
#include "bench/cuda_ceilings.hpp"
#include "bench/cuda_timer.hpp"
#include "bench/evidence.hpp"
#include "bench/fp8_problem.hpp"
#include "bench/launches.hpp"
#include "bench/work.hpp"
#include "cli/child_process.hpp"
#include "cli/command.hpp"
#include "cli/execution.hpp"
#include "cli/io/atomic_file.hpp"
#include "cli/ladder_gate.hpp"
#include "cli/plan_choice.hpp"
#include "cli/problem_options.hpp"
#include "cli/report.hpp"
#include "cli/sanitizer.hpp"
#include "cli/table.hpp"
#include "cuda/fingerprints.hpp"
#include "cuda/ladder/rung.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using cuda::ladder::Rung;
using cuda::ladder::RungInput;
using Json = nlohmann::ordered_json;

constexpr std::string_view kUnfused = "00_unfused";

struct Options {
  std::string rungs = "all";
  std::string device = "cuda:0";
  std::string out = "ladder.json";
  std::string peers = "auto";
  std::string seeds = "0,1,2";
  int64_t tails = 60;
  bool list = false;
  bool quick = false;
  bool no_sanitizers = false;
  bool only_run = false;
};

DType input_of(const Rung& rung) {
  return rung.input == RungInput::fp16 ? DType::f16 : DType::f8e4m3;
}

Result<std::vector<Rung>> chosen_rungs(const std::string& names) {
  const std::span<const Rung> all = cuda::ladder::rungs();
  if (names == "all") return std::vector<Rung>(all.begin(), all.end());
  std::vector<Rung> chosen;
  for (const std::string& name : split(names, ',')) {
    const auto rung =
        std::find_if(all.begin(), all.end(), [&](const Rung& one) { return one.name == name; });
    if (rung == all.end()) {
      return invalid("--rungs: is '{}', wanted 'all' or names that --list shows", name);
    }
    chosen.push_back(*rung);
  }
  return chosen;
}

void list_rungs(const std::vector<Rung>& rungs, Session& session) {
  Table table({{"rung"}, {"input"}, {"from"}, {"adds"}});
  Json rows = Json::array();
  for (const Rung& rung : rungs) {
    const std::string from = fmt::format("sm_{}", rung.min_compute_capability);
    table.row({rung.name, std::string(to_string(input_of(rung))), from, rung.adds});
    rows.push_back({{"name", rung.name},
                    {"input", to_string(input_of(rung))},
                    {"min_compute_capability", rung.min_compute_capability},
                    {"adds", rung.adds},
                    {"prediction", rung.prediction},
                    {"fingerprint", cuda::rung_fingerprint(rung.name)}});
  }
  for (const std::string& line : table.lines()) session.line(line);
  session.document({{"rungs", rows}});
}

// Inputs on the device and a plan for one rung.
class Prepared {
 public:
  static Result<std::unique_ptr<Prepared>> make(const Rung& rung, const bench::Case& shape,
                                                Device device) {
    std::unique_ptr<Prepared> prepared(new Prepared);
    Problem problem = bench::to_problem(shape);
    const bool fp8 = rung.input == RungInput::fp8_e4m3;
    if (fp8) problem = bench::with_fp8_inputs(problem);
    prepared->host_ = std::make_unique<bench::HostProblem>(bench::allocate(problem));
    if (fp8) {
      bench::fill_fp8_inputs(*prepared->host_, 0);
    } else {
      bench::fill_inputs(*prepared->host_, 0);
    }
    PlanOptions options;
    options.device = device;
    options.kernel = rung.name;
    const Result<Plan> plan = make_plan(problem, options);
    if (!plan.ok()) return plan.status();
    Result<Execution> execution = Execution::prepare(*plan, device, *prepared->host_);
    if (!execution.ok()) return execution.status();
    prepared->execution_ = std::make_unique<Execution>(std::move(*execution));
    return prepared;
  }

  bench::TimedCall call() const {
    return [this](Stream stream) { return execution_->run(stream); };
  }
  Status finish() { return execution_->fetch(); }

 private:
  Prepared() = default;
  std::unique_ptr<bench::HostProblem> host_;
  std::unique_ptr<Execution> execution_;
};

// --- what the sanitizers watch ---

Status run_small(const Rung& rung, Device device) {
  for (const int64_t head_dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      bench::Case shape{.name = "small", .batch = 1};
      shape.heads_q = shape.heads_kv = 2;
      shape.seqlen_q = 80;
      shape.seqlen_kv = 112;
      shape.head_dim = head_dim;
      shape.causal = causal;
      const Result<std::unique_ptr<Prepared>> prepared = Prepared::make(rung, shape, device);
      if (!prepared.ok()) return prepared.status();
      FLASHCORE_RETURN_IF_ERROR((*prepared)->call()(Stream{}));
      FLASHCORE_RETURN_IF_ERROR((*prepared)->finish());
    }
  }
  return {};
}

Result<ExitCode> only_run(const std::vector<Rung>& rungs, Device device) {
  bool failed = false;
  for (const Rung& rung : rungs) {
    fmt::print(stdout, "{}\n", sanitizer_mark(rung.name, true));
    std::fflush(stdout);
    const Status status = run_small(rung, device);
    if (!status.ok()) fmt::print(stdout, "========= flashcore: {}\n", status.message());
    if (status.ok()) fmt::print(stdout, "{}\n", sanitizer_mark(rung.name, false));
    std::fflush(stdout);
    failed = failed || !status.ok();
  }
  return failed ? ExitCode::check_failed : ExitCode::ok;
}

// --- the run ---

class Ladder {
 public:
  Ladder(const Options& options, std::vector<Rung> rungs, std::vector<int64_t> seeds,
         Device device, Session& session)
      : options_(options),
        rungs_(std::move(rungs)),
        seeds_(std::move(seeds)),
        device_(device),
        session_(session) {}

  Result<ExitCode> run();

 private:
  using Sanitized = std::future<Result<std::string>>;

  std::vector<Sanitized> start_sanitizers() const;
  Status gate();
  void collect_sanitizers(std::vector<Sanitized> running);
  Status measure_ceilings(bench::CudaTimer& timer, const bench::CudaProtocol& protocol);
  Status time_shape(bench::CudaTimer& timer, const bench::Case& shape);
  Status time_rung(bench::CudaTimer& timer, size_t index, const bench::Case& shape);
  void add_ratios();
  void run_peers();
  void print();
  void print_gates();
  void print_times();
  Status save();

  Json& record(size_t index) { return evidence_["rungs"][index]; }
  bool passed(size_t index) { return record(index)["gate"]["passed"]; }
  void step(const std::string& what) const {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    fmt::print(stderr, "{:6.1f} s  {}\n", seconds, what);
  }

  const Options& options_;
  std::vector<Rung> rungs_;
  std::vector<int64_t> seeds_;
  Device device_;
  Session& session_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<bench::Case> shapes_ = *bench::suite_cases("five");
  Json evidence_;
};

std::vector<std::future<Result<std::string>>> Ladder::start_sanitizers() const {
  std::vector<Sanitized> running;
  if (options_.no_sanitizers) return running;
  std::string names;
  for (const Rung& rung : rungs_) names += fmt::format("{}{}", names.empty() ? "" : ",", rung.name);
  for (const std::string_view tool : kSanitizerTools) {
    running.push_back(std::async(std::launch::async, [this, tool, names] {
      return run_sanitizer(tool, {"ladder", "--only-run", "--rungs", names, "--device",
                                  to_text(device_)});
    }));
  }
  return running;
}

void Ladder::collect_sanitizers(std::vector<Sanitized> running) {
  std::vector<std::string> names;
  for (const Rung& rung : rungs_) names.emplace_back(rung.name);
  for (size_t t = 0; t < running.size(); ++t) {
    const std::string tool(kSanitizerTools[t]);
    step("waiting for " + tool);
    const Result<std::string> output = running[t].get();
    if (!output.ok()) {
      evidence_["notes"].push_back(output.status().message());
      continue;
    }
    const SanitizerResults results = parse_sanitizer(*output, names);
    for (size_t i = 0; i < rungs_.size(); ++i) {
      const SanitizerResult& result = results.at(rungs_[i].name);
      record(i)["sanitizers"][tool] = {{"passed", result.passed()},
                                       {"ran", result.ran},
                                       {"findings", result.findings},
                                       {"first", printable(result.first)}};
    }
  }
}

Json gate_json(const RungGate& gate) {
  Json rows = Json::array();
  for (const GateRow& row : gate.rows) {
    rows.push_back({{"shape", row.shape},
                    {"causal", row.causal},
                    {"passed", row.passed},
                    {"failed", row.failed},
                    {"max_scaled_error", row.max_scaled_error},
                    {"relative_error", row.relative_error},
                    {"lse_error", row.lse_error}});
  }
  return {{"passed", gate.passed()},
          {"failure", gate.failure},
          {"max_scaled_error", gate.max_scaled_error()},
          {"relative_error", gate.relative_error()},
          {"table", rows},
          {"tails",
           {{"passed", gate.tails_passed},
            {"failed", gate.tails_failed},
            {"refused", gate.tails_refused}}},
          {"repeats",
           {{"equal", gate.repeats_equal}, {"different", gate.repeats_different}}}};
}

Status Ladder::gate() {
  std::vector<LadderRung> subjects;
  for (const Rung& rung : rungs_) subjects.push_back({rung.name, input_of(rung)});
  GateOptions gate_options;
  gate_options.seeds = seeds_;
  gate_options.tails = options_.tails;
  gate_options.small_only = options_.quick;
  const Result<RungGates> gates = gate_rungs(subjects, device_, gate_options,
                                             [this](const std::string& what) { step(what); });
  if (!gates.ok()) return gates.status();
  for (size_t i = 0; i < rungs_.size(); ++i) {
    record(i)["gate"] = gate_json(gates->at(rungs_[i].name));
  }
  return {};
}

Status Ladder::measure_ceilings(bench::CudaTimer& timer, const bench::CudaProtocol& protocol) {
  Json& ceilings = evidence_["ceilings"][protocol.name];
  step(fmt::format("ceilings, {}", protocol.name));
  const Result<bench::Timing> empty = bench::time_empty_kernel(timer, protocol);
  if (!empty.ok()) return empty.status();
  ceilings["empty_kernel"] = bench::timing_evidence(*empty);
  const Result<bench::Copy> copy = bench::time_copy(timer, protocol);
  if (!copy.ok()) return copy.status();
  ceilings["copy_bytes_a_second"] = copy->bytes_a_second;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const std::string name(to_string(dtype));
    const Result<bench::MatrixProduct> product =
        bench::time_matrix_product(timer, dtype, protocol);
    if (!product.ok()) {
      evidence_["notes"].push_back(product.status().message());
      ceilings["matrix_product"][name] = nullptr;
      continue;
    }
    ceilings["matrix_product"][name] = {{"tflops", product->flop_a_second * 1e-12},
                                        {"n", product->n},
                                        {"library", product->library}};
  }
  return {};
}

Json launches_json(const std::vector<bench::Launch>& launches) {
  Json list = Json::array();
  for (const bench::Launch& launch : launches) {
    list.push_back({{"kernel", launch.kernel},
                    {"blocks", launch.blocks},
                    {"threads", launch.threads},
                    {"registers", launch.registers},
                    {"local_bytes", launch.local_bytes},
                    {"shared_bytes", launch.shared()},
                    {"blocks_a_multiprocessor", launch.blocks_a_multiprocessor}});
  }
  return list;
}

Status Ladder::time_rung(bench::CudaTimer& timer, size_t index, const bench::Case& shape) {
  const Result<std::unique_ptr<Prepared>> prepared =
      Prepared::make(rungs_[index], shape, device_);
  if (!prepared.ok()) return prepared.status();
  const bench::TimedCall call = (*prepared)->call();
  const Result<std::vector<bench::Launch>> launches =
      bench::launches_of(timer.stream(), call);
  if (!launches.ok()) return launches.status();
  const double flop = bench::forward_flop(bench::to_problem(shape));
  Json& time = record(index)["times"][shape.name];
  for (const bench::CudaProtocol& protocol : {bench::kSustainedProtocol, bench::kIdleProtocol}) {
    const Result<bench::Timing> timing = timer.time(call, protocol);
    if (!timing.ok()) return timing.status();
    Json item = bench::timing_evidence(*timing);
    item["tflops"] = flop / timing->p50 * 1e-12;
    time[protocol.name] = item;
  }
  if (shape.name == shapes_.front().name) {
    const Result<double> host = timer.host_seconds(call);
    if (!host.ok()) return host.status();
    record(index)["host_us"] = *host * 1e6;
  }
  record(index)["launches"][shape.name] = launches_json(*launches);
  return {};
}

Status Ladder::time_shape(bench::CudaTimer& timer, const bench::Case& shape) {
  for (size_t i = 0; i < rungs_.size(); ++i) {
    if (!passed(i)) continue;
    step(fmt::format("time: {} {}", shape.name, rungs_[i].name));
    if (const Status status = time_rung(timer, i, shape); !status.ok()) {
      // The GPU may be unusable after an error, so the run ends here with what there is.
      record(i)["times"].erase(shape.name);
      record(i)["error"] = status.message();
      evidence_["notes"].push_back(status.message());
      return status;
    }
  }
  add_ratios();
  return save();
}

// To the timed rung before it, and to the unfused one; above 1 is faster.
void Ladder::add_ratios() {
  for (const bench::Case& shape : shapes_) {
    double before = 0, unfused = 0;
    for (size_t i = 0; i < rungs_.size(); ++i) {
      Json& times = record(i)["times"];
      if (!times.contains(shape.name)) continue;
      Json& time = times[shape.name];
      const double p50 = time[bench::kSustainedProtocol.name]["p50_us"];
      if (rungs_[i].name == kUnfused) unfused = p50;
      time["speedup_over_before"] = before > 0 ? Json(before / p50) : Json();
      time["speedup_over_unfused"] = unfused > 0 ? Json(unfused / p50) : Json();
      before = p50;
    }
  }
}

// The peers' script lies beside the program's sources; it is run where python3 has PyTorch.
void Ladder::run_peers() {
  if (options_.peers == "none") return;
  step("peers: PyTorch");
  const std::string script = options_.peers == "auto" ? "tools/peers_torch.py" : options_.peers;
  const std::string results = options_.out + ".peers";
  const Result<ChildOutput> output =
      run_child({"python3", script, "--out", results, "--suite", "five"});
  if (!output.ok() || output->exit_status != 0) {
    const std::string why = output.ok() ? output->text : output.status().message();
    evidence_["notes"].push_back("peers: not measured: " + printable(why.substr(0, 400)));
    return;
  }
  const Result<ChildOutput> text = run_child({"cat", results});
  if (text.ok()) evidence_["peers"] = Json::parse(text->text, nullptr, false);
  (void)std::remove(results.c_str());
}

Status Ladder::save() {
  if (options_.out.empty()) return {};
  Result<io::AtomicFile> file = io::AtomicFile::create(options_.out);
  if (!file.ok()) return file.status();
  const std::string text = evidence_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

void Ladder::print_gates() {
  Table table({{"rung"},
               {"gate"},
               {"table", Align::right},
               {"tails", Align::right},
               {"repeats", Align::right},
               {"scaled error", Align::right},
               {"relative", Align::right},
               {"sanitizers"}});
  for (size_t i = 0; i < rungs_.size(); ++i) {
    const Json& gate = record(i)["gate"];
    int64_t good = 0, all = 0;
    for (const Json& row : gate["table"]) {
      good += row["passed"].get<int64_t>();
      all += row["passed"].get<int64_t>() + row["failed"].get<int64_t>();
    }
    const int64_t tails = gate["tails"]["passed"], bad_tails = gate["tails"]["failed"];
    const int64_t equal = gate["repeats"]["equal"], different = gate["repeats"]["different"];
    std::string sanitizers;
    for (const auto& [tool, result] : record(i)["sanitizers"].items()) {
      if (!result["passed"]) sanitizers += (sanitizers.empty() ? "" : ", ") + tool + " FAILED";
    }
    if (sanitizers.empty()) sanitizers = record(i)["sanitizers"].empty() ? "-" : "passed";
    table.row({rungs_[i].name,
               passed(i) ? session_.styled("passed", Tone::good)
                         : session_.styled("FAILED", Tone::bad),
               fmt::format("{}/{}", good, all), fmt::format("{}/{}", tails, tails + bad_tails),
               fmt::format("{}/{}", equal, equal + different),
               fmt::format("{:.2e}", gate["max_scaled_error"].get<double>()),
               fmt::format("{:.2e}", gate["relative_error"].get<double>()), sanitizers});
  }
  for (const std::string& line : table.lines()) session_.line(line);
  for (size_t i = 0; i < rungs_.size(); ++i) {
    const std::string failure = record(i)["gate"]["failure"];
    if (!failure.empty()) session_.line(fmt::format("failed: {}: {}", rungs_[i].name, failure));
    for (const auto& [tool, result] : record(i)["sanitizers"].items()) {
      if (result["passed"]) continue;
      session_.line(fmt::format("failed: {}: {}: {} ({} lines)", rungs_[i].name, tool,
                                result["first"].get<std::string>(),
                                result["findings"].get<int64_t>()));
    }
  }
}

void Ladder::print_times() {
  std::vector<Column> columns = {{"rung"}};
  for (const bench::Case& shape : shapes_) columns.push_back({shape.name, Align::right});
  for (const char* name : {"x before", "x unfused", "regs", "shared", "host"}) {
    columns.push_back({name, Align::right});
  }
  Table table(columns);
  const std::string& mission = shapes_.front().name;
  for (size_t i = 0; i < rungs_.size(); ++i) {
    const Json& times = record(i)["times"];
    std::vector<std::string> cells = {rungs_[i].name};
    for (const bench::Case& shape : shapes_) {
      cells.push_back(times.contains(shape.name)
                          ? fmt::format("{:.2f}", times[shape.name]["sustained"]["p50_us"].get<double>())
                          : "-");
    }
    const auto ratio = [&](const char* name) {
      if (!times.contains(mission) || times[mission].value(name, Json()).is_null()) return std::string("-");
      return fmt::format("{:.2f}", times[mission][name].get<double>());
    };
    cells.push_back(ratio("speedup_over_before"));
    cells.push_back(ratio("speedup_over_unfused"));
    int64_t registers = 0, shared = 0;
    for (const auto& [shape, launches] : record(i)["launches"].items()) {
      for (const Json& launch : launches) {
        registers = std::max(registers, launch["registers"].get<int64_t>());
        shared = std::max(shared, launch["shared_bytes"].get<int64_t>());
      }
    }
    cells.push_back(registers > 0 ? std::to_string(registers) : "-");
    cells.push_back(registers > 0 ? fmt::format("{:.1f} KB", static_cast<double>(shared) / 1024) : "-");
    cells.push_back(record(i).contains("host_us")
                        ? fmt::format("{:.2f}", record(i)["host_us"].get<double>())
                        : "-");
    table.row(std::move(cells));
  }
  session_.line();
  session_.line("us a call, sustained (p50); registers and shared memory are the most of any shape");
  for (const std::string& line : table.lines()) session_.line(line);
}

void Ladder::print() {
  print_gates();
  if (!options_.quick) print_times();
  for (const Json& note : evidence_["notes"]) session_.line("note: " + note.get<std::string>());
  if (!options_.out.empty()) session_.line("evidence: " + options_.out);
}

Result<ExitCode> Ladder::run() {
  evidence_ = bench::new_evidence("ladder");
  evidence_["device"] = bench::cuda_environment(device_.index);
  evidence_["protocols"] = {
      {"sustained", "graph of about 5 ms of calls, 15 warm-up replays, quantiles of 20, points "
                    "back to back"},
      {"idle", "0.3 s pause, then the same with 3 warm-up replays"}};
  evidence_["notes"] = Json::array();
  evidence_["shapes"] = Json::array();
  for (const bench::Case& shape : shapes_) {
    evidence_["shapes"].push_back({{"name", shape.name},
                                   {"batch", shape.batch},
                                   {"heads", shape.heads_q},
                                   {"seqlen", shape.seqlen_q},
                                   {"head_dim", shape.head_dim},
                                   {"causal", shape.causal},
                                   {"flop", bench::forward_flop(bench::to_problem(shape))}});
  }
  evidence_["ceilings"] = Json::object();
  evidence_["rungs"] = Json::array();
  for (const Rung& rung : rungs_) {
    evidence_["rungs"].push_back({{"name", rung.name},
                                  {"adds", rung.adds},
                                  {"prediction", rung.prediction},
                                  {"input", to_string(input_of(rung))},
                                  {"min_compute_capability", rung.min_compute_capability},
                                  {"fingerprint", cuda::rung_fingerprint(rung.name)},
                                  {"gate", nullptr},
                                  {"sanitizers", Json::object()},
                                  {"times", Json::object()},
                                  {"launches", Json::object()}});
  }
  evidence_["peers"] = nullptr;

  std::vector<Sanitized> sanitizers = start_sanitizers();
  FLASHCORE_RETURN_IF_ERROR(gate());
  collect_sanitizers(std::move(sanitizers));
  FLASHCORE_RETURN_IF_ERROR(save());
  if (!options_.quick) {
    const Result<std::unique_ptr<bench::CudaTimer>> timer =
        bench::CudaTimer::create(device_.index, bench::kSustainedProtocol);
    if (!timer.ok()) return timer.status();
    Status status = measure_ceilings(**timer, bench::kIdleProtocol);
    if (status.ok()) status = measure_ceilings(**timer, bench::kSustainedProtocol);
    for (const bench::Case& shape : shapes_) {
      if (status.ok()) status = time_shape(**timer, shape);
    }
    if (status.ok()) run_peers();
    evidence_["complete"] = status.ok() && options_.rungs == "all";
    FLASHCORE_RETURN_IF_ERROR(save());
  }
  print();
  session_.document(evidence_);
  bool good = true;
  for (size_t i = 0; i < rungs_.size(); ++i) {
    good = good && passed(i) && !record(i).contains("error");
    for (const auto& [tool, result] : record(i)["sanitizers"].items()) {
      good = good && result["passed"].get<bool>();
    }
  }
  return good ? ExitCode::ok : ExitCode::check_failed;
}

Result<ExitCode> execute(const Options& options, Session& session) {
  Result<std::vector<Rung>> rungs = chosen_rungs(options.rungs);
  if (!rungs.ok()) return rungs.status();
  if (options.list) {
    list_rungs(*rungs, session);
    return ExitCode::ok;
  }
  if (options.tails < 0) return invalid("--tails: is {}, wanted 0 or more", options.tails);
  Result<std::vector<int64_t>> seeds = parse_numbers(
      "--seeds", options.seeds, split(options.seeds, ',').size(), "numbers such as 0,1,2");
  if (!seeds.ok()) return seeds.status();
  PlanChoice choice;
  choice.device = options.device;
  const Result<std::vector<PlanOptions>> allowed = allowed_devices(choice);
  if (!allowed.ok()) return allowed.status();
  const Device device = allowed->front().device;
  if (device.kind != DeviceKind::cuda) {
    return invalid("--device: is {}, wanted cuda or cuda:N", options.device);
  }
  // Rungs that this GPU cannot run are left out, by name.
  const int32_t capability = [&] {
    for (const DeviceInfo& info : devices()) {
      if (to_text(info.device) == to_text(device)) return info.compute_capability;
    }
    return 0;
  }();
  if (capability == 0) return unsupported("ladder: there is no usable GPU {}", to_text(device));
  std::erase_if(*rungs, [&](const Rung& rung) {
    const bool runs = capability >= rung.min_compute_capability &&
                      (rung.max_compute_capability == 0 || capability <= rung.max_compute_capability);
    if (!runs) fmt::print(stderr, "left out: {}: this GPU lacks its instructions\n", rung.name);
    return !runs;
  });
  if (options.only_run) return only_run(*rungs, device);
  return Ladder(options, std::move(*rungs), std::move(*seeds), device, session).run();
}

}  // namespace

Command ladder_command() {
  auto options = std::make_shared<Options>();
  return {.name = "ladder",
          .summary = "Gate and time every rung of the ladder, and write the evidence",
          .examples =
              "  flashcore ladder --list\n"
              "  flashcore ladder --out docs/evidence/ladder.json\n"
              "  flashcore ladder --rungs 04_wmma_pv,05_warp_softmax --quick --out ''",
          .declare =
              [options](OptionSet& set) {
                set.group("What is climbed");
                set.text("--rungs", options->rungs, "Names, or all", "NAMES");
                set.flag("--list", options->list, "Show the rungs, and do nothing");
                set.flag("--quick", options->quick, "Only the small shape's gates and the tails");
                set.text("--seeds", options->seeds, "Of the gate table's inputs", "NUMBERS");
                set.number("--tails", options->tails, "Random problems a type of input");
                set.flag("--no-sanitizers", options->no_sanitizers,
                         "Leave out compute-sanitizer's four tools");
                set.flag("--only-run", options->only_run,
                         "Run each rung on small problems, unjudged: what the sanitizers watch");
                set.text("--peers", options->peers, "auto, none, or the path of peers_torch.py",
                         "PATH");
                set.text("--device", options->device, "cuda or cuda:N", "DEVICE");
                set.text("--out", options->out, "Where the evidence is written; '' for nowhere",
                         "FILE");
              },
          .execute = [options](Session& session) { return execute(*options, session); }};
}

}  // namespace flashcore::cli
