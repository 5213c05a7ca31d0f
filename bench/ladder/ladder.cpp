#include "bench/ladder/ladder.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "bench/cases/cases.hpp"
#include "bench/cases/work.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/ladder/ladder_evidence.hpp"
#include "bench/process/sanitizer.hpp"
#include "bench/run/run.hpp"
#include "bench/time/meter.hpp"
#include "bench/verify/gate_table.hpp"
#include "bench/verify/kernel.hpp"
#include "bench/verify/random.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBackends = "flash,cudnn,efficient,math";  // PyTorch's own

Case with_input(Case one, DType input) {
  one.dtype = input;
  one.scales = size_of(input) == 1;
  return one;
}

class Ladder final : public RunListener {
 public:
  Ladder(const std::vector<Rung>& rungs, const PlanOptions& plan, const LadderOptions& options,
         const std::function<void(const std::string&)>& step)
      : rungs_(rungs), plan_(plan), options_(options), step_(step) {
    for (const Rung& rung : rungs) names_.push_back(rung.name);
  }

  Result<Json> climb();

 private:
  Status open();
  Status gate();
  Status gate_input(DType input);
  Status time();
  std::vector<Subject> timed_cases() const;
  Status save() {
    return options_.out.empty() ? Status() : write_evidence(options_.out, evidence_);
  }

  void begins(const Step& step) override { step_(step.what); }
  void finished(const Json* one) override {
    if (one == nullptr) return;
    add_case(evidence_, *one);
    for (const Json& row : (*one)["rows"]) {
      std::set<std::string> launched;
      for (const Json& launch : row.value("launches", Json::array())) {
        launched.insert(launch["kernel"].get<std::string>());
      }
      if (!launched.empty()) add_launched(row["implementation"], launched);
    }
    saved_ = save();
  }

  // Adds to the functions that identify a rung: all that it launched for its gates and its times.
  void add_launched(const std::string& rung, const std::set<std::string>& launched) {
    std::set<std::string>& all = launched_[rung];
    all.insert(launched.begin(), launched.end());
    rung_record(evidence_, rung)["fingerprint"] = fingerprint_of(rung, plan_.device, all);
  }

  std::vector<std::string> names_of(DType input) const {
    std::vector<std::string> names;
    for (const Rung& rung : rungs_) {
      if (rung.input == input) names.push_back(rung.name);
    }
    return names;
  }

  const std::vector<Rung>& rungs_;
  const PlanOptions& plan_;
  const LadderOptions& options_;
  const std::function<void(const std::string&)>& step_;
  std::vector<std::string> names_;
  std::map<std::string, std::set<std::string>> launched_;  // rung to functions
  Json evidence_;
  Status saved_;
};

Status Ladder::open() {
  evidence_ = new_evidence("ladder");
  evidence_["device"] = {{"name", info_of(plan_.device).name}};
  evidence_["protocols"] = Json::object();
  if (plan_.device.kind != DeviceKind::sim) {
    const Result<std::unique_ptr<Meter>> meter = make_meter(plan_.device, plan_.threads);
    if (!meter.ok()) return meter.status();
    evidence_["device"] = (*meter)->environment();
    for (const Protocol& one : (*meter)->protocols()) evidence_["protocols"][one.name] = one.text;
  }
  evidence_["notes"] = Json::array();
  evidence_["shapes"] = Json::array();
  for (const Case& shape : options_.timed) {
    evidence_["shapes"].push_back({{"name", shape.name},
                                   {"batch", shape.batch},
                                   {"heads", shape.heads_q},
                                   {"seqlen", shape.seqlen_q},
                                   {"head_dim", shape.head_dim},
                                   {"causal", shape.causal},
                                   {"flop", forward_flop(to_problem(shape))}});
  }
  evidence_["ceilings"] = Json::object();
  evidence_["rungs"] = Json::array();
  for (const Rung& rung : rungs_) {
    evidence_["rungs"].push_back({{"name", rung.name},
                                  {"adds", rung.adds},
                                  {"prediction", rung.prediction},
                                  {"input", to_string(rung.input)},
                                  {"min_compute_capability", rung.min_compute_capability},
                                  {"fingerprint", fingerprint_of(rung.name, plan_.device, {})},
                                  {"gate", nullptr},
                                  {"sanitizers", Json::object()},
                                  {"times", Json::object()},
                                  {"launches", Json::object()}});
  }
  evidence_["peers"] = nullptr;
  return save();
}

// Gates the rungs that read this type: the table of gates, then random problems.
Status Ladder::gate_input(DType input) {
  const Tested tested{.plan = plan_, .kernels = names_of(input)};
  std::vector<Case> cases;
  for (const Case& shape : options_.gated) {
    for (const bool causal : {false, true}) {
      cases.push_back(with_input(shape, input));
      cases.back().causal = causal;
    }
  }
  const Result<std::vector<GateRow>> rows = judge_table(cases, options_.seeds, tested);
  if (!rows.ok()) return rows.status();
  RandomTrials tails{.problems = options_.tails, .first_seed = 0, .space = {}};
  // More heads cost a simulated GPU seconds, and run the same code.
  tails.space = {.largest_seqlen = 300,
                 .most_heads = plan_.device.kind == DeviceKind::sim ? 2 : 0,
                 .any_dtype = false,
                 .dtype = input,
                 .any_feature = false,
                 .any_head_dim = false,
                 .grouped_heads = false,
                 .hostile_values = input == DType::f16};
  Findings found;
  FLASHCORE_RETURN_IF_ERROR(judge_random(tails, tested, found));
  for (const std::string& name : tested.kernels) {
    rung_record(evidence_, name)["gate"] = rung_gate(name, *rows, found);
  }
  for (const auto& [one, kernel, tally] : *rows) add_launched(kernel, tally.launched);
  for (const auto& [kernel, tally] : found.tallies()) add_launched(kernel, tally.launched);
  return {};
}

Status Ladder::gate() {
  RunningSanitizers sanitizers;
  if (!options_.sanitized.empty()) sanitizers = start_sanitizers(options_.sanitized);
  std::set<DType> inputs;
  for (const Rung& rung : rungs_) inputs.insert(rung.input);
  for (const DType input : inputs) {
    step_("gates, " + std::string(to_string(input)));
    FLASHCORE_RETURN_IF_ERROR(gate_input(input));
  }
  Json results = Json::object();
  const Status ran = collect_sanitizers(
      std::move(sanitizers), names_,
      [&](std::string_view tool) { step_("waiting for " + std::string(tool)); }, results);
  if (!ran.ok()) evidence_["notes"].push_back(ran.message());
  for (const auto& [name, tools] : results.items())
    rung_record(evidence_, name)["sanitizers"] = tools;
  return save();
}

// Every shape, with the rungs' inputs, for the rungs that passed their gates.
std::vector<Subject> Ladder::timed_cases() const {
  std::vector<Subject> subjects;
  for (const Case& shape : options_.timed) {
    for (const DType input : {DType::f16, DType::f8e4m3}) {
      std::vector<std::string> kernels;
      for (const Json& one : evidence_["rungs"]) {
        if (one["input"] == to_string(input) && one["gate"]["passed"]) {
          kernels.push_back(one["name"]);
        }
      }
      if (kernels.empty()) continue;
      subjects.push_back({.suite = "five",
                          .one = with_input(shape, input),
                          .given = std::nullopt,
                          .kernels = kernels});
    }
  }
  return subjects;
}

Status Ladder::time() {
  RunOptions options;
  options.launches = true;
  options.peers = options_.peers;
  options.backends = kBackends;
  Json run;
  const Status status = run_cases(options, timed_cases(), plan_, RunOrder{}, *this, run);
  if (run.is_object()) {  // otherwise it did not begin
    evidence_["ceilings"] = run["ceilings"];
    for (const Json& note : run["notes"]) evidence_["notes"].push_back(note);
    if (run["peers"].is_object()) {
      Json peers = run["peers"];
      peers["shapes"] = Json::object();
      if (evidence_["peers"].is_object()) peers.update(evidence_["peers"]);
      evidence_["peers"] = peers;
    }
  }
  for (Json& rung : evidence_["rungs"]) {
    for (const Case& shape : options_.timed) {
      if (!rung["gate"]["passed"] || rung["times"].contains(shape.name)) continue;
      if (rung.contains("error")) continue;
      rung["error"] =
          fmt::format("{}: not timed{}", shape.name, status.ok() ? "" : ": " + status.message());
    }
  }
  FLASHCORE_RETURN_IF_ERROR(saved_);
  evidence_["complete"] = status.ok() && run["complete"] && options_.all_rungs;
  return save();
}

Result<Json> Ladder::climb() {
  FLASHCORE_RETURN_IF_ERROR(open());
  FLASHCORE_RETURN_IF_ERROR(gate());
  if (options_.times) FLASHCORE_RETURN_IF_ERROR(time());
  return std::move(evidence_);
}

}  // namespace

Result<Json> climb_ladder(const std::vector<Rung>& rungs, const PlanOptions& plan,
                          const LadderOptions& options,
                          const std::function<void(const std::string&)>& step) {
  return Ladder(rungs, plan, options, step).climb();
}

Status run_rungs_marked(const std::vector<Rung>& rungs, const PlanOptions& plan) {
  Status first;
  for (const Rung& rung : rungs) {
    for (const int64_t head_dim : {64, 128}) {
      for (const bool causal : {false, true}) {
        Case one =
            with_input(square_case("small", DType::f16, 1, 2, 80, head_dim, causal), rung.input);
        one.seqlen_kv = 112;
        HostProblem host = fill(one, 0);
        const Status status = run_marked(host, plan, rung.name);
        if (!status.ok() && first.ok()) first = status;
        if (!status.ok()) break;
      }
    }
  }
  return first;
}

}  // namespace flashcore::bench
