#include "bench/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "bench/cases/problem_text.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"
#include "bench/peers/peers.hpp"
#include "bench/run/case.hpp"
#include "bench/run/case_evidence.hpp"
#include "bench/text/numbers.hpp"
#include "bench/time/meter.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostPeerStarts = 4;
constexpr const char* kOutOfTime = "not every case was measured: --seconds ran out";
constexpr const char* kEndedEarly = "ended early: ";

class Run {
 public:
  Run(const RunOptions& options, const std::vector<Subject>& subjects, const PlanOptions& plan,
      const RunOrder& order, RunListener& listener, Json& evidence)
      : options_(options),
        subjects_(subjects),
        plan_(plan),
        order_(order),
        listener_(listener),
        evidence_(evidence),
        cases_(subjects.size()) {}

  Status run();

 private:
  Status open();
  Status choose_protocols();
  Status resume();
  void start_peers();
  void find_native_peers();
  void measure_ceilings();
  Status measure_all();
  Status measure(size_t index);
  const TiledInputs& inputs_of(DType dtype);
  std::string why_lost(const Subject& subject, const std::string& implementation) const;
  Status save();
  double elapsed() const;
  bool out_of_time() const { return options_.seconds > 0 && elapsed() > options_.seconds; }

  const RunOptions& options_;
  const std::vector<Subject>& subjects_;
  const PlanOptions& plan_;
  const RunOrder& order_;
  RunListener& listener_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<Meter> meter_;
  std::vector<Protocol> protocols_;
  std::unique_ptr<TiledInputs> inputs_;  // for the type used last
  std::unique_ptr<Peers> peers_;
  int peer_starts_ = 0;
  std::vector<std::unique_ptr<NativePeer>> native_peers_;
  Json& evidence_;
  Json earlier_ = Json::array();  // cases of the file that is resumed
  std::vector<Json> cases_;       // per subject; null before it is measured
  bool skipped_ = false, incomplete_ = false;
};

double Run::elapsed() const {
  return order_.elapsed +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Status Run::choose_protocols() {
  if (options_.tuning) {
    protocols_ = {meter_->tuning_protocol()};
    return {};
  }
  const std::vector<Protocol> all = meter_->protocols();
  if (options_.protocols == "all" || options_.protocols == "auto") {
    for (const Protocol& one : all) {
      if (!one.by_name) protocols_.push_back(one);
    }
    return {};
  }
  for (const std::string& name : split(options_.protocols, ',')) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Protocol& one) { return one.name == name; });
    if (found == all.end()) {
      std::string names;
      for (const Protocol& one : all) names += ", " + one.name;
      return invalid("--protocol: is '{}', wanted one of auto, all{}", name, names);
    }
    protocols_.push_back(*found);
  }
  return {};
}

// Accepts cases of a file if it is from this build, on this device, with these protocols.
Status Run::resume() {
  std::error_code ignored;
  if (!std::filesystem::exists(order_.out, ignored)) return {};
  Result<Json> file = read_evidence(order_.out);
  if (!file.ok()) return file.status();
  for (const char* const member :
       {"kind", "library", "device", "pass", "deterministic", "protocols", "grid_limit"}) {
    if (file->value(member, Json()) == evidence_.value(member, Json())) continue;
    return invalid("{}: was written with another {}, wanted the same one to resume", order_.out,
                   member);
  }
  earlier_ = (*file)["cases"];
  for (const char* const member : {"ceilings", "notes"}) evidence_[member] = (*file)[member];
  if (order_.goes_on) {
    evidence_["created"] = (*file)["created"];
    return {};
  }
  // How the earlier run ended does not matter for this one.
  std::erase_if(evidence_["notes"].get_ref<Json::array_t&>(), [](const Json& note) {
    const std::string text = note.is_string() ? note.get<std::string>() : "";
    return text == kOutOfTime || text.starts_with(kEndedEarly);
  });
  evidence_["notes"].push_back(fmt::format("resumed with the ceilings and {} of {}",
                                           counted(std::ssize(earlier_), "case"),
                                           (*file)["created"].get<std::string>()));
  return {};
}

Status Run::open() {
  Result<std::unique_ptr<Meter>> meter = make_meter(plan_.device, plan_.threads);
  if (!meter.ok()) return meter.status();
  meter_ = std::move(*meter);
  FLASHCORE_RETURN_IF_ERROR(choose_protocols());
  evidence_ = new_evidence(options_.tuning ? "tuning" : "bench");
  evidence_["device"] = meter_->environment();
  if (options_.backward) {
    evidence_["pass"] = "backward";
    evidence_["deterministic"] = plan_.deterministic;
  }
  evidence_["protocols"] = Json::object();
  for (const Protocol& one : protocols_) evidence_["protocols"][one.name] = one.text;
  evidence_["notes"] = Json::array();
  evidence_["ceilings"] = Json::object();
  evidence_["peers"] = nullptr;
  if (options_.tuning) evidence_["grid_limit"] = options_.tuning->grid_limit;
  if (options_.resume || order_.goes_on) FLASHCORE_RETURN_IF_ERROR(resume());
  // Finds out before the work if the path cannot be written.
  return earlier_.empty() ? save() : Status();
}

// The helper imports its libraries while the ceilings are measured.
void Run::start_peers() {
  if (options_.peers == "none" || ++peer_starts_ > kMostPeerStarts) return;
  Result<std::unique_ptr<Peers>> peers =
      Peers::start(peers_script(options_.peers), plan_.device, plan_.threads, options_.backends);
  if (peers.ok()) {
    peers_ = std::move(*peers);
  } else {
    evidence_["notes"].push_back("no peers: " + peers.status().message());
  }
}

void Run::find_native_peers() {
  if (options_.peers == "none") return;
  if (peers_) {
    if (const Status status = peers_->greet(); status.ok()) {
      evidence_["peers"] = peers_->versions();
    } else {
      evidence_["notes"].push_back("no peers: " + status.message());
      peers_.reset();
    }
  }
  if (options_.backward) return;  // the peers in this process have a forward pass only
  const std::vector<std::string> wanted =
      options_.backends == "auto" ? std::vector<std::string>() : split(options_.backends, ',');
  NativePeers native = native_peers(plan_.device, plan_.threads, wanted);
  native_peers_ = std::move(native.found);
  if (native_peers_.empty() && native.missing.empty()) return;
  if (evidence_["peers"].is_null()) evidence_["peers"] = Json::object();
  for (const auto& peer : native_peers_) evidence_["peers"][peer->name()] = peer->version();
  for (const auto& [name, why] : native.missing) evidence_["peers"]["missing"][name] = why;
}

void Run::measure_ceilings() {
  if (!evidence_["ceilings"].empty() || options_.tuning) return;
  std::set<DType> dtypes;
  for (const Subject& subject : subjects_) dtypes.insert(subject.problem().q.dtype);
  for (const Protocol& protocol : protocols_) {
    evidence_["ceilings"][protocol.name] = meter_->ceilings(protocol, dtypes, evidence_["notes"]);
  }
}

const TiledInputs& Run::inputs_of(DType dtype) {
  if (!inputs_ || inputs_->dtype() != dtype) inputs_ = std::make_unique<TiledInputs>(dtype);
  return *inputs_;
}

std::string Run::why_lost(const Subject& subject, const std::string& implementation) const {
  for (const RunOrder::Lost& one : order_.lost) {
    if (one.suite == subject.suite && one.name == subject.name() &&
        one.implementation == implementation) {
      return one.why;
    }
  }
  return {};
}

Status Run::measure(size_t index) {
  const Subject& subject = subjects_[index];
  if (peers_ && !peers_->alive()) {  // they ended in an earlier case
    start_peers();
    if (const Status status = peers_->greet(); !status.ok()) {
      evidence_["notes"].push_back("no peers from " + subject.name() + " on: " + status.message());
      peers_.reset();
    }
  }
  const CaseSetting setting{
      .options = options_,
      .plan = plan_,
      .meter = *meter_,
      .protocols = protocols_,
      .ceilings = evidence_["ceilings"],
      .peers = peers_.get(),
      .native_peers = native_peers_,
      .inputs = inputs_of(subject.problem().q.dtype),
      .step = [this](const Step& step) { listener_.begins(step); },
      .lost = [this](const Subject& one, const std::string& name) { return why_lost(one, name); },
      .out_of_time = [this] { return out_of_time(); }};
  Result<Json> one = measure_case(setting, subject, evidence_["notes"]);
  if (one.status().code() == StatusCode::out_of_memory) {  // the next case may be smaller
    evidence_["notes"].push_back(subject.name() + ": not measured: " + one.status().message());
    incomplete_ = true;
    return {};
  }
  if (!one.ok()) return one.status();
  if (one->is_null()) {
    skipped_ = true;
    return {};
  }
  cases_[index] = std::move(*one);
  if (options_.tuning) {
    FLASHCORE_RETURN_IF_ERROR(options_.tuning->finished(subject, cases_[index]));
  }
  FLASHCORE_RETURN_IF_ERROR(save());
  listener_.finished(&cases_[index]);
  return {};
}

Status Run::measure_all() {
  // First copies everything that exists, so that another interruption loses nothing.
  for (size_t i = 0; i < subjects_.size(); ++i) {
    if (const Json* const one = finished_case(earlier_, subjects_[i], peers_ != nullptr)) {
      cases_[i] = *one;
      listener_.finished(nullptr);
    }
  }
  for (size_t i = 0; i < subjects_.size(); ++i) {
    if (!cases_[i].is_null()) continue;
    if (options_.tuning && options_.tuning->is_known(subjects_[i])) {
      listener_.finished(nullptr);
      continue;
    }
    if (out_of_time()) {
      skipped_ = true;
      return {};
    }
    FLASHCORE_RETURN_IF_ERROR(measure(i));
  }
  return {};
}

Status Run::save() {
  evidence_["cases"] = Json::array();
  for (const Json& one : cases_) {
    if (!one.is_null()) evidence_["cases"].push_back(one);
  }
  return order_.out.empty() ? Status() : write_evidence(order_.out, evidence_);
}

Status Run::run() {
  FLASHCORE_RETURN_IF_ERROR(open());
  listener_.begins({.what = "peers and ceilings", .suite = "", .name = "", .implementation = ""});
  start_peers();
  measure_ceilings();
  const double ceilings = elapsed();
  find_native_peers();
  evidence_["seconds"] = {{"ceilings", ceilings}, {"peers", elapsed() - ceilings}};
  Status status = measure_all();
  peers_.reset();
  if (skipped_) evidence_["notes"].push_back(kOutOfTime);
  if (!status.ok()) {
    // A worker leaves it to the watching process to say how the run ended.
    if (options_.worker.empty()) {
      evidence_["notes"].push_back(kEndedEarly + status.message());
    }
    FLASHCORE_RETURN_IF_ERROR(save());
    return status;
  }
  evidence_["complete"] = !skipped_ && !incomplete_;
  evidence_["seconds"]["all"] = elapsed();
  return save();
}

}  // namespace

std::string Subject::name() const { return given ? tensor_text(given->problem.q) : one.name; }

Problem Subject::problem() const { return given ? given->problem : to_problem(one); }

Status run_cases(const RunOptions& options, const std::vector<Subject>& subjects,
                 const PlanOptions& plan, const RunOrder& order, RunListener& listener,
                 Json& evidence) {
  return Run(options, subjects, plan, order, listener, evidence).run();
}

}  // namespace flashcore::bench
