#include "cli/ladder_run.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cases.hpp"
#include "bench/cuda_ceilings.hpp"
#include "bench/cuda_timer.hpp"
#include "bench/evidence.hpp"
#include "bench/fp8_problem.hpp"
#include "bench/launches.hpp"
#include "bench/meter.hpp"
#include "bench/tiled_inputs.hpp"
#include "bench/work.hpp"
#include "cli/bench_peers.hpp"
#include "cli/bench_workload.hpp"
#include "cli/evidence_file.hpp"
#include "cli/ladder_gate.hpp"
#include "cli/ladder_tables.hpp"
#include "cli/plan_choice.hpp"
#include "cli/prepared_kernel.hpp"
#include "cli/sanitizer.hpp"
#include "dispatch/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using cuda::ladder::Rung;
using cuda::ladder::RungInput;
using Json = nlohmann::ordered_json;

constexpr double kShortCall = 1e-4;
constexpr std::string_view kUnfused = "00_unfused";

Problem rung_problem(const Rung& rung, const bench::Case& shape) {
  const Problem problem = bench::to_problem(shape);
  return rung.input == RungInput::fp8_e4m3 ? bench::with_fp8_inputs(problem) : problem;
}

Status run_small(const Rung& rung, Device device) {
  for (const int64_t head_dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      bench::Case shape{.name = "small", .batch = 1};
      shape.heads_q = shape.heads_kv = 2;
      shape.seqlen_q = 80;
      shape.seqlen_kv = 112;
      shape.head_dim = head_dim;
      shape.causal = causal;
      const Result<std::unique_ptr<PreparedKernel>> prepared =
          PreparedKernel::make(rung.name, rung_problem(rung, shape), device);
      if (!prepared.ok()) return prepared.status();
      FLASHCORE_RETURN_IF_ERROR((*prepared)->call()(Stream{}));
      FLASHCORE_RETURN_IF_ERROR((*prepared)->finish());
    }
  }
  return {};
}

class Ladder {
 public:
  Ladder(const LadderOptions& options, std::vector<Rung> rungs, std::vector<int64_t> seeds,
         Device device, Session& session)
      : options_(options),
        rungs_(std::move(rungs)),
        seeds_(std::move(seeds)),
        device_(device),
        session_(session) {}

  Result<ExitCode> run();

 private:
  RunningSanitizers start_sanitizers() const;
  Status gate();
  void collect_sanitizers(RunningSanitizers running);
  void measure_ceilings(bench::CudaTimer& timer, const bench::CudaProtocol& protocol);
  Status time_shape(bench::CudaTimer& timer, const bench::Case& shape);
  Status time_rung(bench::CudaTimer& timer, size_t index, const bench::Case& shape);
  void add_ratios();
  Status time_peers();
  void run_peers();
  void print();
  Status save();

  Json& record(size_t index) { return evidence_["rungs"][index]; }
  bool passed(size_t index) { return record(index)["gate"]["passed"]; }
  void step(const std::string& what) const {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    fmt::print(stderr, "{:6.1f} s  {}\n", seconds, what);
  }

  const LadderOptions& options_;
  std::vector<Rung> rungs_;
  std::vector<int64_t> seeds_;
  Device device_;
  Session& session_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<bench::Case> shapes_ = *bench::suite_cases("five");
  Json evidence_;
};

RunningSanitizers Ladder::start_sanitizers() const {
  if (options_.no_sanitizers) return {};
  std::string names;
  for (const Rung& rung : rungs_) names += fmt::format("{}{}", names.empty() ? "" : ",", rung.name);
  return cli::start_sanitizers(
      {"ladder", "--only-run", "--rungs", names, "--device", to_text(device_)});
}

void Ladder::collect_sanitizers(RunningSanitizers running) {
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
      record(i)["sanitizers"][tool] = sanitizer_evidence(results.at(rungs_[i].name));
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
          {"repeats", {{"equal", gate.repeats_equal}, {"different", gate.repeats_different}}}};
}

Status Ladder::gate() {
  std::vector<LadderRung> subjects;
  for (const Rung& rung : rungs_) subjects.push_back({rung.name, input_of(rung)});
  GateOptions gate_options;
  gate_options.seeds = seeds_;
  gate_options.tails = options_.tails;
  gate_options.small_only = options_.quick;
  const Result<RungGates> gates =
      gate_rungs(subjects, device_, gate_options, [this](const std::string& what) { step(what); });
  if (!gates.ok()) return gates.status();
  for (size_t i = 0; i < rungs_.size(); ++i) {
    record(i)["gate"] = gate_json(gates->at(rungs_[i].name));
  }
  return {};
}

void Ladder::measure_ceilings(bench::CudaTimer& timer, const bench::CudaProtocol& protocol) {
  step(fmt::format("ceilings, {}", protocol.name));
  evidence_["ceilings"][protocol.name] =
      bench::cuda_ceilings(timer, protocol, {DType::f16, DType::bf16}, evidence_["notes"]);
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
  const Result<std::unique_ptr<PreparedKernel>> prepared =
      PreparedKernel::make(rungs_[index].name, rung_problem(rungs_[index], shape), device_);
  if (!prepared.ok()) return prepared.status();
  const bench::TimedCall call = (*prepared)->call();
  const Result<std::vector<bench::Launch>> launches = bench::launches_of(timer.stream(), call);
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
    if (Status status = time_rung(timer, i, shape); !status.ok()) {
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

// One peer on one shape, by every protocol; an error is its own.
Json peer_json(Peers& peers, const PeerVerdict& peer, const bench::Meter& meter) {
  Json row = {{"backend", peer.name}, {"version", peer.version}, {"passed", peer.verdict.passed}};
  if (!peer.error.empty()) {
    row["error"] = peer.error;
    return row;
  }
  row["max_scaled_error"] = peer.verdict.max_scaled_error;
  if (!may_be_timed(peer.verdict)) return row;
  bool is_short = true;  // only then does a call's cost on the host matter
  for (bench::Protocol protocol : meter.protocols()) {
    protocol.rounds = 1;
    const Result<bench::Timing> timing = peers.time(peer.name, meter, protocol);
    if (!timing.ok()) {
      row["error"] = timing.status().message();
      return row;
    }
    row[protocol.name] = bench::timing_evidence(*timing);
    is_short = is_short && timing->p50 < kShortCall;
  }
  if (!is_short) return row;
  if (const Result<double> host = peers.host_seconds(peer.name); host.ok()) {
    row["host_us"] = *host * 1e6;
  }
  return row;
}

Status Ladder::time_peers() {
  const Result<std::unique_ptr<bench::Meter>> meter = bench::make_meter(device_, 0);
  if (!meter.ok()) return meter.status();
  const Result<std::unique_ptr<Peers>> peers =
      Peers::start(peers_script(options_.peers), device_, 0, "flash,cudnn,efficient,math");
  if (!peers.ok()) return peers.status();
  FLASHCORE_RETURN_IF_ERROR((*peers)->greet());
  PlanOptions plan;
  plan.device = device_;
  const bench::TiledInputs inputs(DType::f16);
  Json found = (*peers)->versions();
  found["shapes"] = Json::object();
  for (const bench::Case& shape : shapes_) {
    step("peers: " + shape.name);
    const Result<std::unique_ptr<TiledWorkload>> workload =
        TiledWorkload::make(bench::to_problem(shape), inputs, plan);
    if (!workload.ok()) return workload.status();
    const Result<std::vector<PeerVerdict>> verdicts =
        (*peers)->begin(shape, "five", inputs, **workload);
    if (!verdicts.ok()) return verdicts.status();
    Json& rows = found["shapes"][shape.name] = Json::array();
    for (const PeerVerdict& peer : *verdicts) rows.push_back(peer_json(**peers, peer, **meter));
    evidence_["peers"] = found;
  }
  return {};
}

void Ladder::run_peers() {
  if (options_.peers == "none") return;
  step("peers: PyTorch");
  if (const Status status = time_peers(); !status.ok()) {
    evidence_["notes"].push_back("peers: " + status.message());
  }
}

Status Ladder::save() {
  return options_.out.empty() ? Status() : write_json(options_.out, evidence_);
}

void Ladder::print() {
  print_ladder_gates(evidence_, session_);
  if (!options_.quick) print_ladder_times(evidence_, session_);
  for (const Json& note : evidence_["notes"]) session_.line("note: " + note.get<std::string>());
  if (!options_.out.empty()) session_.line("evidence: " + options_.out);
}

Result<ExitCode> Ladder::run() {
  evidence_ = bench::new_evidence("ladder");
  evidence_["device"] = bench::cuda_environment(device_.index);
  evidence_["protocols"] = {
      {"sustained",
       "graph of about 5 ms of calls, 15 warm-up replays, quantiles of 20, points "
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
                                  {"fingerprint", kernel_fingerprint(rung.name)},
                                  {"gate", nullptr},
                                  {"sanitizers", Json::object()},
                                  {"times", Json::object()},
                                  {"launches", Json::object()}});
  }
  evidence_["peers"] = nullptr;

  RunningSanitizers sanitizers = start_sanitizers();
  FLASHCORE_RETURN_IF_ERROR(gate());
  collect_sanitizers(std::move(sanitizers));
  FLASHCORE_RETURN_IF_ERROR(save());
  if (!options_.quick) {
    const Result<std::unique_ptr<bench::CudaTimer>> timer =
        bench::CudaTimer::create(device_.index, bench::kSustainedProtocol);
    if (!timer.ok()) return timer.status();
    measure_ceilings(**timer, bench::kIdleProtocol);
    measure_ceilings(**timer, bench::kSustainedProtocol);
    Status status;
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

}  // namespace

DType input_of(const Rung& rung) {
  return rung.input == RungInput::fp16 ? DType::f16 : DType::f8e4m3;
}

Result<ExitCode> run_rungs_once(const std::vector<Rung>& rungs, Device device) {
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

Result<ExitCode> run_ladder(const LadderOptions& options, std::vector<Rung> rungs,
                            std::vector<int64_t> seeds, Device device, Session& session) {
  return Ladder(options, std::move(rungs), std::move(seeds), device, session).run();
}

}  // namespace flashcore::cli
