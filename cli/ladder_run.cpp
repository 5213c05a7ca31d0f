#include "cli/ladder_run.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/cases/cases.hpp"
#include "bench/cases/work.hpp"
#include "bench/device/cuda_environment.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/text/terminal.hpp"
#include "bench/time/cuda_ceilings.hpp"
#include "bench/time/cuda_timer.hpp"
#include "cli/ladder_gate.hpp"
#include "cli/ladder_peers.hpp"
#include "cli/ladder_rung.hpp"
#include "cli/ladder_tables.hpp"
#include "cli/ladder_times.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using cuda::ladder::Rung;
using Json = nlohmann::ordered_json;

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
  bench::RunningSanitizers begin_sanitizers() const;
  Status gate();
  void collect_sanitizers(bench::RunningSanitizers running);
  void measure_ceilings(bench::CudaTimer& timer, const bench::CudaProtocol& protocol);
  Status time_shape(bench::CudaTimer& timer, const bench::Case& shape);
  void run_peers();
  void print();
  Status save();

  Json& record(size_t index) { return evidence_["rungs"][index]; }
  bool passed(size_t index) { return record(index)["gate"]["passed"]; }
  void step(const std::string& what) const {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    bench::write_text(stderr, fmt::format("{:6.1f} s  {}\n", seconds, what));
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

bench::RunningSanitizers Ladder::begin_sanitizers() const {
  if (options_.no_sanitizers) return {};
  std::string names;
  for (const Rung& rung : rungs_) names += fmt::format("{}{}", names.empty() ? "" : ",", rung.name);
  return bench::start_sanitizers(
      {"ladder", "--only-run", "--rungs", names, "--device", bench::to_text(device_)});
}

void Ladder::collect_sanitizers(bench::RunningSanitizers running) {
  std::vector<std::string> names;
  for (const Rung& rung : rungs_) names.emplace_back(rung.name);
  for (size_t t = 0; t < running.size(); ++t) {
    const std::string tool(bench::kSanitizerTools[t]);
    step("waiting for " + tool);
    const Result<std::string> output = running[t].get();
    if (!output.ok()) {
      evidence_["notes"].push_back(output.status().message());
      continue;
    }
    const bench::SanitizerResults results = bench::parse_sanitizer(*output, names);
    for (size_t i = 0; i < rungs_.size(); ++i) {
      record(i)["sanitizers"][tool] = bench::sanitizer_evidence(results.at(rungs_[i].name));
    }
  }
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
    record(i)["gate"] = gate_evidence(gates->at(rungs_[i].name));
  }
  return {};
}

void Ladder::measure_ceilings(bench::CudaTimer& timer, const bench::CudaProtocol& protocol) {
  step(fmt::format("ceilings, {}", protocol.name));
  evidence_["ceilings"][protocol.name] =
      bench::cuda_ceilings(timer, protocol, {DType::f16, DType::bf16}, evidence_["notes"]);
}

Status Ladder::time_shape(bench::CudaTimer& timer, const bench::Case& shape) {
  for (size_t i = 0; i < rungs_.size(); ++i) {
    if (!passed(i)) continue;
    step(fmt::format("time: {} {}", shape.name, rungs_[i].name));
    const bool first = &shape == &shapes_.front();
    if (Status status = time_rung(timer, rungs_[i], shape, device_, first, record(i));
        !status.ok()) {
      // The GPU may be unusable after an error, so the run ends here with what there is.
      record(i)["times"].erase(shape.name);
      record(i)["error"] = status.message();
      evidence_["notes"].push_back(status.message());
      return status;
    }
  }
  add_ratios(shapes_, evidence_["rungs"]);
  return save();
}

void Ladder::run_peers() {
  if (options_.peers == "none") return;
  step("peers: PyTorch");
  const Status status = time_ladder_peers(
      options_.peers, shapes_, device_, [this](const std::string& what) { step(what); },
      evidence_["peers"]);
  if (!status.ok()) {
    evidence_["notes"].push_back("peers: " + status.message());
  }
}

Status Ladder::save() {
  return !options_.writes() ? Status() : bench::write_evidence(options_.out, evidence_);
}

void Ladder::print() {
  print_ladder_gates(evidence_, session_);
  if (!options_.quick) print_ladder_times(evidence_, session_);
  for (const Json& note : evidence_["notes"]) session_.line("note: " + note.get<std::string>());
  if (options_.writes()) session_.line("evidence: " + options_.out);
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
                                  {"fingerprint", kernel_fingerprint(rung.name, device_)},
                                  {"gate", nullptr},
                                  {"sanitizers", Json::object()},
                                  {"times", Json::object()},
                                  {"launches", Json::object()}});
  }
  evidence_["peers"] = nullptr;

  bench::RunningSanitizers sanitizers = begin_sanitizers();
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

Result<ExitCode> run_ladder(const LadderOptions& options, std::vector<Rung> rungs,
                            std::vector<int64_t> seeds, Device device, Session& session) {
  return Ladder(options, std::move(rungs), std::move(seeds), device, session).run();
}

}  // namespace flashcore::cli
