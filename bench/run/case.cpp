#include "bench/run/case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "bench/device/plan_choice.hpp"
#include "bench/process/resident.hpp"
#include "bench/run/backward_workload.hpp"
#include "bench/run/case_evidence.hpp"
#include "bench/text/numbers.hpp"
#include "bench/time/launched.hpp"
#include "plan/fingerprints.hpp"
#include "plan/tuning_plans.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Point::Kind;

constexpr double kShortCall = 1e-4;  // a call's cost on the host matters only below this

bool is_listed(const std::string& name, const std::string& list) {
  const std::vector<std::string> names = split(list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

class CaseRun {
 public:
  CaseRun(const CaseSetting& setting, const Subject& subject, Json& notes)
      : setting_(setting),
        subject_(subject),
        pass_{subject.problem(), subject.gradients},
        notes_(notes) {}

  Result<Json> run();

 private:
  void step(const std::string& implementation, const std::string& what) const {
    std::string text = subject_.name();
    for (const std::string& part : {implementation, what}) {
      if (!part.empty()) text += ", " + part;
    }
    setting_.step({.what = std::move(text),
                   .suite = subject_.suite,
                   .name = subject_.name(),
                   .implementation = implementation});
  }

  Status add_kernels();
  void mark_choice();
  Status add_candidates();
  Status make_workload();
  Status make_backward_workload();
  template <class AnyWorkload>
  Status keep(Result<std::unique_ptr<AnyWorkload>> made) {
    if (!made.ok()) return made.status();
    workload_ = std::move(*made);
    return {};
  }
  Status gate_kernel(Point& point);
  void add_native_peers(TiledWorkload& workload);
  void add_process_peers(const JudgedRows& reference);
  Status time_all();
  Status time_round(Point& point, const Protocol& protocol);
  void time_hosts();
  Status list_launches();
  // Tuning compares whole rounds: a part of a case is worthless.
  bool out_of_time() const { return setting_.options.tuning && setting_.out_of_time(); }
  bool takes(const Protocol& protocol) const;
  bool sits_out(const Point& point) const;

  const CaseSetting& setting_;
  const Subject& subject_;
  const Pass pass_;
  Json& notes_;
  std::unique_ptr<Workload> workload_;
  std::vector<Point> points_;
  Json state_;  // clock and power right after the headline's points
  bool ended_early_ = false;
};

Status CaseRun::add_candidates() {
  const Result<std::vector<std::string>> names =
      pass_.gradients ? candidates_of(pass_.problem, *pass_.gradients, setting_.plan)
                      : candidates_of(pass_.problem, setting_.plan);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    Point& point = points_.emplace_back();
    point.name = name;
    point.error = setting_.lost(subject_, name);
    point.is_default = points_.size() == 1;
  }
  return {};
}

Status CaseRun::add_kernels() {
  if (setting_.options.tuning) return add_candidates();
  const RunOptions& options = setting_.options;
  const auto under_test = [&](bool all, const std::vector<std::string>& names) {
    return kernels_under_test(pass_, setting_.plan, all, names);
  };
  const bool only = subject_.kernels.empty() && !options.only.empty();
  Result<std::vector<KernelVerdict>> kernels =
      under_test(options.all_kernels, only ? split(options.only, ',') : subject_.kernels);
  if (!kernels.ok()) {
    if (!only) return kernels.status();
    return invalid("--only: is '{}', wanted kernels that `flashcore explain` lists", options.only);
  }
  for (const std::string& name : split(options.also, ',')) {
    const Result<std::vector<KernelVerdict>> also = under_test(true, {name});
    if (!also.ok()) {
      return invalid("--also: is '{}', wanted kernels that `flashcore explain` lists", name);
    }
    const bool there = std::any_of(kernels->begin(), kernels->end(), [&](const KernelVerdict& one) {
      return one.kernel == also->front().kernel;
    });
    if (!there) kernels->push_back(also->front());
  }
  if (subject_.gradients && kernels->empty()) {
    return unsupported("kernel: none of {} computes gradients, wanted a device with one",
                       to_text(setting_.plan.device));
  }
  for (const KernelVerdict& kernel : *kernels) {
    // A refusal gets a row if the kernel or the problem was asked for.
    const bool asked = !setting_.plan.kernel.empty() || subject_.given.has_value() ||
                       !subject_.kernels.empty() || is_listed(kernel.kernel, options.also);
    if (!kernel.refusal.empty() && !asked) continue;
    Point& point = points_.emplace_back();
    point.name = kernel.kernel;
    point.refusal = kernel.refusal;
    point.error = setting_.lost(subject_, kernel.kernel);
  }
  mark_choice();
  return {};
}

// The kernel that is chosen where none is asked for.
void CaseRun::mark_choice() {
  PlanOptions options = setting_.plan;
  options.kernel.clear();
  const Result<Plan> plan = pass_.plan(options);
  for (Point& point : points_) point.is_default = plan.ok() && point.name == plan->kernel();
}

// Refuses kernels whose gate would take too long; then there is no workload.
Status CaseRun::make_backward_workload() {
  const Gradients& gradients = *subject_.gradients;
  if (const std::string refusal = gate_refusal(pass_.problem, gradients); !refusal.empty()) {
    for (Point& point : points_) {
      if (point.refusal.empty()) point.refusal = refusal;
    }
    return {};
  }
  if (!subject_.given) {
    return keep(tiled_backward_workload(pass_.problem, gradients, setting_.inputs, setting_.plan));
  }
  FLASHCORE_RETURN_IF_ERROR(check_memory(pass_.problem, gradients));
  Result<HostBackward> host = subject_.given->load(gradients);
  if (!host.ok()) return host.status();
  return keep(given_backward_workload(std::move(*host), setting_.plan));
}

Status CaseRun::make_workload() {
  if (subject_.gradients) return make_backward_workload();
  // Repeated pieces have no scales.
  if (subject_.given || subject_.one.scales) {
    return keep(given_workload(subject_.given ? subject_.given->load() : fill(subject_.one, 0),
                               setting_.plan));
  }
  return keep(TiledWorkload::make(pass_.problem, keys_in_use(subject_.one),
                                  rotated_copies(subject_.one), setting_.inputs, setting_.plan));
}

// A failed device ends the run; any other error belongs to the kernel.
Status CaseRun::gate_kernel(Point& point) {
  const Status status = [&]() -> Status {
    PlanOptions options = setting_.plan;
    options.kernel = point.name;
    const Result<Plan> plan = pass_.plan(options);
    if (!plan.ok()) return plan.status();
    Result<TimedCall> call = workload_->prepare(*plan);
    if (!call.ok()) return call.status();
    point.call = std::move(*call);
    point.workspace_bytes = plan->workspace_bytes();
    const ResidentPeak peak;
    FLASHCORE_RETURN_IF_ERROR(point.call(Stream{}));
    if (options.device.kind == DeviceKind::cpu) point.resident_growth = peak.growth();
    const Result<std::set<std::string>> launched = launched_by(point.call, options.device);
    if (!launched.ok()) return launched.status();
    point.fingerprint = fingerprint_of(point.name, options.device, *launched);
    const Result<Verdict> verdict = workload_->judge();
    if (!verdict.ok()) return verdict.status();
    point.verdict = *verdict;
    return {};
  }();
  if (!status.ok()) point.error = status.message();
  return status.code() == StatusCode::device_error ? status : Status();
}

void CaseRun::add_native_peers(TiledWorkload& workload) {
  for (const std::unique_ptr<NativePeer>& peer : setting_.native_peers) {
    Point& point = points_.emplace_back();
    point.name = peer->name();
    point.version = peer->version();
    point.kind = Kind::native_peer;
    point.error = setting_.lost(subject_, point.name);
    if (!point.error.empty()) continue;
    step(point.name, "gate");
    Result<TimedCall> call = workload.prepare(*peer);
    if (!call.ok()) {
      const bool refused = call.status().code() == StatusCode::unsupported;
      (refused ? point.refusal : point.error) = call.status().message();
      continue;
    }
    point.call = std::move(*call);
    const Status status = [&]() -> Status {
      FLASHCORE_RETURN_IF_ERROR(point.call(Stream{}));
      const Result<Verdict> verdict = workload.judge_output();
      if (!verdict.ok()) return verdict.status();
      point.verdict = *verdict;
      return {};
    }();
    if (!status.ok()) point.error = status.message();
  }
}

// Judged by the kernels' reference, for the timed pass.
void CaseRun::add_process_peers(const JudgedRows& reference) {
  step("", "peers");
  const Result<std::vector<PeerVerdict>> verdicts =
      setting_.peers->begin(subject_.one, subject_.suite, setting_.inputs, reference);
  if (!verdicts.ok()) {
    notes_.push_back(subject_.name() + ": " + verdicts.status().message());
    return;
  }
  for (const PeerVerdict& peer : *verdicts) {
    Point& point = points_.emplace_back();
    point.name = peer.name;
    point.version = peer.version;
    point.kind = Kind::peer_process;
    point.of_gradients = subject_.gradients.has_value();
    point.error = peer.error;
    if (point.error.empty()) point.error = setting_.lost(subject_, point.name);
    if (peer.error.empty()) point.verdict = peer.verdict;
  }
}

Status CaseRun::time_round(Point& point, const Protocol& protocol) {
  const bool elsewhere = point.kind == Kind::peer_process;
  const Result<Timing> timing = elsewhere
                                    ? setting_.peers->time(point.name, setting_.meter, protocol)
                                    : setting_.meter.time(point.call, protocol);
  if (!timing.ok()) {
    point.error = timing.status().message();
    point.times.clear();
    return timing.status().code() == StatusCode::device_error && !elsewhere ? timing.status()
                                                                            : Status();
  }
  // The first round of candidates is a trial and also a warm-up: it counts only for those that
  // sit out afterwards.
  if (setting_.options.tuning && point.trial > 0 && point.p50[protocol.name].size() == 1 &&
      point.p50[protocol.name].front() == point.trial) {
    point.p50.clear();
    point.times.clear();
  }
  if (setting_.options.tuning && point.trial == 0) point.trial = timing->p50;
  point.p50[protocol.name].push_back(timing->p50);
  const auto before = point.times.find(protocol.name);
  point.times[protocol.name] =
      before == point.times.end() ? *timing : pooled({before->second, *timing});
  return {};
}

// Times all implementations in turns, round by round, so that a slow moment hits all of them.
Status CaseRun::time_all() {
  for (const Protocol& protocol : setting_.protocols) {
    if (!takes(protocol)) continue;
    for (int round = 0; round < protocol.rounds; ++round) {
      for (Point& point : points_) {
        if (!point.timed() || (round > 0 && sits_out(point))) continue;
        ended_early_ = out_of_time();
        if (ended_early_) return {};
        step(point.name, protocol.name);
        FLASHCORE_RETURN_IF_ERROR(time_round(point, protocol));
      }
    }
    if (&protocol == setting_.protocols.data()) state_ = setting_.meter.state();
  }
  if (setting_.options.tuning) return {};
  time_hosts();
  return setting_.options.launches ? list_launches() : Status();
}

// Skips candidates that were far behind in the trial.
bool CaseRun::sits_out(const Point& point) const {
  constexpr double kFarBehind = 1.3;
  if (!setting_.options.tuning || point.is_default || point.trial == 0) return false;
  double best = point.trial;
  for (const Point& one : points_) {
    if (one.trial > 0 && one.timed()) best = std::min(best, one.trial);
  }
  return point.trial > kFarBehind * best;
}

// Every case has the headline protocol; others only on request, or in suites that show them.
bool CaseRun::takes(const Protocol& protocol) const {
  if (&protocol == setting_.protocols.data() || setting_.options.protocols != "auto") return true;
  return subject_.suite == "five" ||
         (subject_.suite == "sweep" && pass_.problem.q.shape[2] == 4096);
}

void CaseRun::time_hosts() {
  const std::string& headline = setting_.protocols.front().name;
  for (Point& point : points_) {
    const auto time = point.times.find(headline);
    if (time == point.times.end() || time->second.p50 > kShortCall) continue;
    step(point.name, "eager calls");
    const Result<double> host = point.kind == Kind::peer_process
                                    ? setting_.peers->host_seconds(point.name)
                                    : setting_.meter.host_seconds(point.call);
    if (host.ok()) point.host_seconds = *host;
  }
}

Status CaseRun::list_launches() {
  for (Point& point : points_) {
    if (point.is_peer() || !point.timed()) continue;
    Result<Json> launches = setting_.meter.launches(point.call);
    if (!launches.ok()) return launches.status();
    point.launches = std::move(*launches);
  }
  return {};
}

Result<Json> CaseRun::run() {
  const auto start = std::chrono::steady_clock::now();
  Json seconds = Json::object();  // time from the case's start to the end of each phase
  const auto phase_ended = [&](const char* name) {
    seconds[name] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  FLASHCORE_RETURN_IF_ERROR(add_kernels());
  step("", "inputs and reference");
  FLASHCORE_RETURN_IF_ERROR(make_workload());
  phase_ended("reference");
  for (Point& point : points_) {
    if (!point.refusal.empty() || !point.error.empty()) continue;
    if (out_of_time()) return Json();
    step(point.name, "gate");
    FLASHCORE_RETURN_IF_ERROR(gate_kernel(point));
  }
  phase_ended("gates");
  auto* const forward = dynamic_cast<TiledWorkload*>(workload_.get());
  if (forward != nullptr && asks_native_peers(subject_.one)) add_native_peers(*forward);
  const JudgedRows* const rows = workload_ ? workload_->rows() : nullptr;
  const bool asks =
      setting_.peers != nullptr && asks_peers(subject_.one, subject_.gradients.has_value());
  if (asks && rows != nullptr) add_process_peers(*rows);
  phase_ended("peers");
  FLASHCORE_RETURN_IF_ERROR(time_all());
  if (ended_early_) return Json();

  Json one = case_json(subject_);
  if (workload_) one["flop"] = workload_->flop();
  one["judged"] = workload_ ? workload_->judged() : "nothing";
  one["state"] = state_;
  one["rows"] = rows_json(points_, one, subject_, setting_.ceilings);
  phase_ended("all");
  one["seconds"] = seconds;
  return one;
}

}  // namespace

Result<Json> measure_case(const CaseSetting& setting, const Subject& subject, Json& notes) {
  return CaseRun(setting, subject, notes).run();
}

}  // namespace flashcore::bench
