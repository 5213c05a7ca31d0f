#include "cli/bench_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/evidence.hpp"
#include "bench/meter.hpp"
#include "bench/work.hpp"
#include "cli/bench_peers.hpp"
#include "cli/bench_table.hpp"
#include "cli/bench_workload.hpp"
#include "cli/evidence_file.hpp"
#include "cli/progress.hpp"
#include "cli/report.hpp"
#include "dispatch/fingerprints.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

using Json = nlohmann::ordered_json;

// One implementation on one case.
struct Point {
  std::string name, version, fingerprint;
  bool peer = false;
  std::string refusal, error;
  std::optional<bench::Verdict> verdict;
  bench::TimedCall call;                           // of a kernel
  std::map<std::string, bench::Timing> times;      // by protocol
  std::map<std::string, std::vector<double>> p50;  // of each round
  double host_seconds = 0;

  bool timed() const {
    if (!refusal.empty() || !error.empty() || !verdict) return false;
    return peer ? may_be_timed(*verdict) : verdict->passed;
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double bytes_of(const Problem& problem) {
  double bytes = 0;
  for (const TensorDesc* desc : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    auto size = static_cast<double>(size_of(desc->dtype));
    for (size_t d = 0; d < static_cast<size_t>(desc->rank); ++d) {
      size *= static_cast<double>(desc->shape[d]);
    }
    bytes += size;
  }
  return bytes;
}

bool is_listed(const std::string& name, const std::string& list) {
  const std::vector<std::string> names = split(list, ',');
  return std::find(names.begin(), names.end(), name) != names.end();
}

class BenchRun {
 public:
  BenchRun(const BenchOptions& options, std::vector<BenchSubject> subjects, const PlanOptions& plan,
           Session& session)
      : options_(options), subjects_(std::move(subjects)), plan_(plan), session_(session) {}

  Result<ExitCode> run();

 private:
  Status open();
  Status choose_protocols();
  Status begin_evidence();
  Status resume();
  void step(Progress& progress, const std::string& what) const;
  void start_peers();
  void greet_peers();
  void measure_ceilings();

  bool done(const BenchSubject& subject);
  Status measure(const BenchSubject& subject, Progress& progress);
  Result<std::unique_ptr<Workload>> workload_of(const BenchSubject& subject);
  Result<std::vector<Point>> kernels_of(const Problem& problem) const;
  Status gate(Workload& workload, const Problem& problem, Point& point) const;
  void add_peers(const BenchSubject& subject, const TiledWorkload& workload,
                 std::vector<Point>& points);
  Status time_points(const BenchSubject& subject, std::vector<Point>& points, Progress& progress);
  Status time_round(Point& point, const bench::Protocol& protocol);

  Json case_json(const BenchSubject& subject, const Problem& problem) const;
  Json row_json(const Point& point, const Json& one, const Problem& problem) const;
  double bound_seconds(const Json& one, const std::string& protocol) const;
  const bench::TiledInputs& inputs_of(DType dtype);
  Status save() const;
  void print();

  const BenchOptions& options_;
  std::vector<BenchSubject> subjects_;
  const PlanOptions& plan_;
  Session& session_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<bench::Meter> meter_;
  std::vector<bench::Protocol> protocols_;
  std::unique_ptr<bench::TiledInputs> inputs_;  // of the type used last
  std::unique_ptr<Peers> peers_;
  Json evidence_;
  Json state_;                    // clock and power right after the headline's points
  Json earlier_ = Json::array();  // cases of the file that is resumed
  bool failed_ = false;
};

// Said before it is done, so that a hang has a name.
void BenchRun::step(Progress& progress, const std::string& what) const {
  progress.step(what);
  if (options_.verbose) fmt::print(stderr, "{:6.1f} s  begins {}\n", seconds_since(start_), what);
}

Status BenchRun::choose_protocols() {
  const std::vector<bench::Protocol> all = meter_->protocols();
  if (options_.protocols == "all") {
    protocols_ = all;
    return {};
  }
  for (const std::string& name : split(options_.protocols, ',')) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const bench::Protocol& one) { return one.name == name; });
    if (found == all.end()) {
      std::string names;
      for (const bench::Protocol& one : all) names += ", " + one.name;
      return invalid("--protocol: is '{}', wanted one of all{}", name, names);
    }
    protocols_.push_back(*found);
  }
  return {};
}

Status BenchRun::begin_evidence() {
  evidence_ = bench::new_evidence("bench");
  evidence_["device"] = meter_->environment();
  evidence_["protocols"] = Json::object();
  for (const bench::Protocol& one : protocols_) evidence_["protocols"][one.name] = one.text;
  evidence_["notes"] = Json::array();
  evidence_["ceilings"] = Json::object();
  evidence_["peers"] = nullptr;
  evidence_["cases"] = Json::array();
  return options_.resume ? resume() : Status();
}

// Cases of a file count when it is from this build on this device by these protocols.
Status BenchRun::resume() {
  std::error_code ignored;
  if (!std::filesystem::exists(options_.out, ignored)) return {};
  Result<Json> file = read_evidence(options_.out);
  if (!file.ok()) return file.status();
  const auto same = [&](const char* member) {
    return file->value(member, Json()) == evidence_[member];
  };
  for (const char* const member : {"kind", "library", "device", "protocols"}) {
    if (!same(member)) {
      return invalid("{}: was written with another {}, wanted this one's to resume", options_.out,
                     member);
    }
  }
  earlier_ = (*file)["cases"];
  evidence_["ceilings"] = (*file)["ceilings"];  // what its percentages are of
  evidence_["notes"] = (*file)["notes"];
  evidence_["notes"].push_back(fmt::format("resumed with the ceilings and {} cases of {}",
                                           earlier_.size(), (*file)["created"].get<std::string>()));
  return {};
}

void BenchRun::start_peers() {
  if (options_.peers == "none") return;
  Result<std::unique_ptr<Peers>> peers =
      Peers::start(peers_script(options_.peers), plan_.device, plan_.threads, options_.backends);
  if (!peers.ok()) {
    evidence_["notes"].push_back("no peers: " + peers.status().message());
    return;
  }
  peers_ = std::move(*peers);
}

void BenchRun::greet_peers() {
  if (!peers_) return;
  if (const Status status = peers_->greet(); !status.ok()) {
    evidence_["notes"].push_back("no peers: " + status.message());
    peers_.reset();
    return;
  }
  evidence_["peers"] = peers_->versions();
}

void BenchRun::measure_ceilings() {
  if (!evidence_["ceilings"].empty()) return;
  std::set<DType> dtypes;
  for (const BenchSubject& subject : subjects_) dtypes.insert(subject.problem().q.dtype);
  for (const bench::Protocol& protocol : protocols_) {
    evidence_["ceilings"][protocol.name] = meter_->ceilings(protocol, dtypes, evidence_["notes"]);
  }
}

const bench::TiledInputs& BenchRun::inputs_of(DType dtype) {
  if (!inputs_ || inputs_->dtype() != dtype) inputs_ = std::make_unique<bench::TiledInputs>(dtype);
  return *inputs_;
}

Result<std::vector<Point>> BenchRun::kernels_of(const Problem& problem) const {
  Result<std::vector<KernelVerdict>> kernels =
      kernels_under_test(problem, plan_, options_.all_kernels);
  if (!kernels.ok()) return kernels.status();
  const Result<std::vector<KernelVerdict>> all = explain(problem, plan_);
  if (!all.ok()) return all.status();
  for (const std::string& name : split(options_.also, ',')) {
    const auto found = std::find_if(all->begin(), all->end(),
                                    [&](const KernelVerdict& one) { return one.kernel == name; });
    if (found == all->end()) {
      return invalid("--also: is '{}', wanted kernels that `flashcore explain` lists", name);
    }
    const bool there = std::any_of(kernels->begin(), kernels->end(),
                                   [&](const KernelVerdict& one) { return one.kernel == name; });
    if (!there) kernels->push_back(*found);
  }
  std::vector<Point> points;
  for (const KernelVerdict& kernel : *kernels) {
    // A refusal is worth a row where the kernel or the problem was asked for.
    const bool asked = !plan_.kernel.empty() || options_.problem.given() ||
                       is_listed(kernel.kernel, options_.also);
    if (!kernel.refusal.empty() && !asked) continue;
    Point point;
    point.name = kernel.kernel;
    point.fingerprint = kernel_fingerprint(kernel.kernel);
    point.refusal = kernel.refusal;
    points.push_back(std::move(point));
  }
  return points;
}

// A device that failed ends the run; any other error is the kernel's own.
Status BenchRun::gate(Workload& workload, const Problem& problem, Point& point) const {
  const Status status = [&]() -> Status {
    PlanOptions options = plan_;
    options.kernel = point.name;
    const Result<Plan> plan = make_plan(problem, options);
    if (!plan.ok()) return plan.status();
    Result<bench::TimedCall> call = workload.prepare(*plan);
    if (!call.ok()) return call.status();
    point.call = std::move(*call);
    FLASHCORE_RETURN_IF_ERROR(point.call(Stream{}));
    const Result<bench::Verdict> verdict = workload.judge();
    if (!verdict.ok()) return verdict.status();
    point.verdict = *verdict;
    return {};
  }();
  if (!status.ok()) point.error = status.message();
  return status.code() == StatusCode::device_error ? status : Status();
}

void BenchRun::add_peers(const BenchSubject& subject, const TiledWorkload& workload,
                         std::vector<Point>& points) {
  const Result<std::vector<PeerVerdict>> verdicts =
      peers_->begin(subject.one, subject.suite, inputs_of(subject.one.dtype), workload);
  if (!verdicts.ok()) {
    evidence_["notes"].push_back(subject.name() + ": " + verdicts.status().message());
    return;
  }
  for (const PeerVerdict& peer : *verdicts) {
    Point point;
    point.name = peer.name;
    point.version = peer.version;
    point.peer = true;
    point.error = peer.error;
    if (peer.error.empty()) point.verdict = peer.verdict;
    points.push_back(std::move(point));
  }
}

Status BenchRun::time_round(Point& point, const bench::Protocol& protocol) {
  const Result<bench::Timing> timing =
      point.peer ? peers_->time(point.name, *meter_, protocol) : meter_->time(point.call, protocol);
  if (!timing.ok()) {
    point.error = timing.status().message();
    point.times.clear();
    return timing.status().code() == StatusCode::device_error && !point.peer ? timing.status()
                                                                             : Status();
  }
  point.p50[protocol.name].push_back(timing->p50);
  const auto before = point.times.find(protocol.name);
  point.times[protocol.name] =
      before == point.times.end() ? *timing : bench::pooled({before->second, *timing});
  return {};
}

// All implementations in turns, round by round, so that a slow moment hits every one of them.
Status BenchRun::time_points(const BenchSubject& subject, std::vector<Point>& points,
                             Progress& progress) {
  for (const bench::Protocol& protocol : protocols_) {
    for (int round = 0; round < protocol.rounds; ++round) {
      for (Point& point : points) {
        if (!point.timed()) continue;
        step(progress, fmt::format("{}, {}, {}", subject.name(), point.name, protocol.name));
        FLASHCORE_RETURN_IF_ERROR(time_round(point, protocol));
      }
    }
    if (&protocol == protocols_.data()) state_ = meter_->state();
  }
  for (Point& point : points) {
    if (!point.timed()) continue;
    const Result<double> host =
        point.peer ? peers_->host_seconds(point.name) : meter_->host_seconds(point.call);
    if (host.ok()) point.host_seconds = *host;
  }
  return {};
}

Json BenchRun::case_json(const BenchSubject& subject, const Problem& problem) const {
  const Result<ForwardProblem> resolved = resolve(problem);
  const ForwardProblem p = resolved.ok() ? *resolved : ForwardProblem{};
  Json one = {
      {"name", subject.name()},  {"suite", subject.suite},   {"dtype", to_string(problem.q.dtype)},
      {"batch", p.batch},        {"heads_q", p.heads_q},     {"heads_kv", p.heads_kv},
      {"seqlen_q", p.seqlen_q},  {"seqlen_kv", p.seqlen_kv}, {"head_dim", p.head_dim_qk},
      {"causal", problem.causal}};
  if (subject.given) one["problem"] = problem_json(problem);
  one["flop"] = bench::forward_flop(problem);
  one["bytes"] = bytes_of(problem);
  return one;
}

// The least time that the ceilings of the run allow; 0 when none was measured.
double BenchRun::bound_seconds(const Json& one, const std::string& protocol) const {
  const Json ceilings = evidence_["ceilings"].value(protocol, Json::object());
  double bound = 0;
  const Json products = ceilings.value("matrix_product", Json::object());
  const std::string dtype = one["dtype"];
  const std::string key = products.contains(dtype) ? dtype : "f32";
  if (products.contains(key) && !products[key].is_null()) {
    bound = one["flop"].get<double>() / (products[key]["tflops"].get<double>() * 1e12);
  }
  if (const double rate = ceilings.value("copy_bytes_a_second", 0.0); rate > 0) {
    bound = std::max(bound, one["bytes"].get<double>() / rate);
  }
  return bound;
}

Json BenchRun::row_json(const Point& point, const Json& one, const Problem& problem) const {
  Json row = {{"implementation", point.name},
              {"source", point.peer ? "peer" : "flashcore"},
              {"fingerprint", point.fingerprint}};
  if (!point.version.empty()) row["version"] = point.version;
  if (!point.refusal.empty()) row["refusal"] = point.refusal;
  if (!point.error.empty()) row["error"] = point.error;
  row["gate"] = point.verdict ? verdict_json(*point.verdict, problem) : Json();
  row["times"] = Json::object();
  const double flop = one["flop"];
  for (const auto& [protocol, timing] : point.times) {
    Json time = bench::timing_evidence(timing);
    Json rounds = Json::array();
    for (const double p50 : point.p50.at(protocol)) rounds.push_back(p50 * 1e6);
    time["rounds_us"] = rounds;
    time["tflops"] = flop / timing.p50 * 1e-12;
    if (const double bound = bound_seconds(one, protocol); bound > 0) {
      time["percent_of_bound"] = 100 * bound / timing.p50;
    }
    row["times"][protocol] = time;
  }
  if (point.host_seconds > 0) row["host_us"] = point.host_seconds * 1e6;
  return row;
}

// Of each of our rows to the peer that was fastest; above 1 we are faster.
void add_ratios(Json& rows, const std::string& protocol) {
  double best = 0;
  std::string name;
  for (const Json& row : rows) {
    if (row["source"] != "peer" || !row["times"].contains(protocol)) continue;
    const double p50 = row["times"][protocol]["p50_us"];
    if (best == 0 || p50 < best) {
      best = p50;
      name = row["implementation"];
    }
  }
  for (Json& row : rows) {
    if (best == 0 || row["source"] == "peer" || !row["times"].contains(protocol)) continue;
    Json& time = row["times"][protocol];
    time["fastest_peer"] = name;
    time["speedup_over_fastest_peer"] = best / time["p50_us"].get<double>();
  }
}

// A case of the resumed file is kept when its kernels' sources are still these.
bool BenchRun::done(const BenchSubject& subject) {
  const Json wanted = case_json(subject, subject.problem());
  for (const Json& one : earlier_) {
    const bool same = std::all_of(
        wanted.items().begin(), wanted.items().end(),
        [&](const auto& item) { return one.value(item.key(), Json()) == item.value(); });
    if (!same) continue;
    const Json& rows = one["rows"];
    const bool current = std::all_of(rows.begin(), rows.end(), [](const Json& row) {
      return row["source"] == "peer" ||
             row["fingerprint"] == kernel_fingerprint(row["implementation"].get<std::string>());
    });
    const bool has_peers = std::any_of(rows.begin(), rows.end(),
                                       [](const Json& row) { return row["source"] == "peer"; });
    if (!current || rows.empty() || (peers_ && !has_peers)) continue;
    evidence_["cases"].push_back(one);
    return true;
  }
  return false;
}

Result<std::unique_ptr<Workload>> BenchRun::workload_of(const BenchSubject& subject) {
  if (subject.given) return given_workload(*subject.given, plan_);
  const Problem problem = subject.problem();
  Result<std::unique_ptr<TiledWorkload>> made =
      TiledWorkload::make(problem, inputs_of(problem.q.dtype), plan_);
  if (!made.ok()) return made.status();
  return std::unique_ptr<Workload>(std::move(*made));
}

Status BenchRun::measure(const BenchSubject& subject, Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  const Problem problem = subject.problem();
  Result<std::vector<Point>> points = kernels_of(problem);
  if (!points.ok()) return points.status();
  step(progress, subject.name() + ", inputs and reference");
  const Result<std::unique_ptr<Workload>> workload = workload_of(subject);
  if (!workload.ok()) return workload.status();
  Json seconds = {{"reference", seconds_since(start)}};
  for (Point& point : *points) {
    if (!point.refusal.empty()) continue;
    step(progress, subject.name() + ", " + point.name + ", gate");
    FLASHCORE_RETURN_IF_ERROR(gate(**workload, problem, point));
  }
  seconds["gates"] = seconds_since(start);
  if (const auto* const tiled = dynamic_cast<const TiledWorkload*>(workload->get());
      peers_ && tiled != nullptr) {
    step(progress, subject.name() + ", peers");
    add_peers(subject, *tiled, *points);
  }
  seconds["peers"] = seconds_since(start);
  FLASHCORE_RETURN_IF_ERROR(time_points(subject, *points, progress));

  Json one = case_json(subject, problem);
  one["judged"] = (*workload)->judged();
  one["state"] = state_;
  Json rows = Json::array();
  for (const Point& point : *points) {
    rows.push_back(row_json(point, one, problem));
    if (point.peer || !point.refusal.empty()) continue;
    failed_ = failed_ || !point.error.empty() || !point.verdict || !point.verdict->passed;
  }
  for (const bench::Protocol& protocol : protocols_) add_ratios(rows, protocol.name);
  one["rows"] = rows;
  seconds["all"] = seconds_since(start);
  one["seconds"] = seconds;  // from the case's beginning to the end of each phase
  evidence_["cases"].push_back(one);
  return {};
}

Status BenchRun::save() const {
  return options_.out.empty() ? Status() : write_json(options_.out, evidence_);
}

void BenchRun::print() {
  print_bench(evidence_, protocols_.front().name, session_);
  if (!options_.out.empty()) session_.line("evidence " + options_.out);
}

Status BenchRun::open() {
  Result<std::unique_ptr<bench::Meter>> meter = bench::make_meter(plan_.device, plan_.threads);
  if (!meter.ok()) return meter.status();
  meter_ = std::move(*meter);
  FLASHCORE_RETURN_IF_ERROR(choose_protocols());
  FLASHCORE_RETURN_IF_ERROR(begin_evidence());
  // A path that cannot be written is known before the work.
  return earlier_.empty() ? save() : Status();
}

Result<ExitCode> BenchRun::run() {
  FLASHCORE_RETURN_IF_ERROR(open());
  Status status;
  bool skipped = false, incomplete = false;
  {
    Progress progress(session_.shows_progress(), "bench", std::ssize(subjects_));
    step(progress, "peers and ceilings");
    start_peers();
    measure_ceilings();
    const double ceilings = seconds_since(start_);
    greet_peers();
    evidence_["seconds"] = {{"ceilings", ceilings}, {"peers", seconds_since(start_) - ceilings}};
    for (size_t i = 0; i < subjects_.size() && status.ok(); ++i) {
      const BenchSubject& subject = subjects_[i];
      const bool late = options_.seconds > 0 && seconds_since(start_) > options_.seconds;
      skipped = skipped || late;
      if (!late && !done(subject)) {
        status = measure(subject, progress);
        if (status.code() == StatusCode::out_of_memory) {  // the next case may be smaller
          evidence_["notes"].push_back(subject.name() + ": not measured: " + status.message());
          incomplete = true;
          status = {};
          continue;
        }
        if (status.ok()) status = save();
        if (!session_.shows_progress() && subjects_.size() > 1 && status.ok()) {
          fmt::print(stderr, "{:6.1f} s  {}/{} {}\n", seconds_since(start_), i + 1,
                     subjects_.size(),
                     bench_line(evidence_["cases"].back(), protocols_.front().name));
        }
      }
      progress.advance();
    }
  }
  peers_.reset();
  if (skipped) evidence_["notes"].push_back("not every case was measured: --seconds ran out");
  if (!status.ok()) {
    evidence_["notes"].push_back("ended early: " + status.message());
    FLASHCORE_RETURN_IF_ERROR(save());
    return status;
  }
  evidence_["complete"] = !skipped && !incomplete;
  FLASHCORE_RETURN_IF_ERROR(save());
  print();
  Json document = {{"status", failed_ ? "check_failed" : "ok"}};
  document.update(evidence_);
  session_.document(document);
  return failed_ ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace

std::string BenchSubject::name() const { return given ? tensor_text(given->problem.q) : one.name; }

Problem BenchSubject::problem() const { return given ? given->problem : bench::to_problem(one); }

Result<ExitCode> run_bench(const BenchOptions& options, std::vector<BenchSubject> subjects,
                           const PlanOptions& plan, Session& session) {
  return BenchRun(options, std::move(subjects), plan, session).run();
}

}  // namespace flashcore::cli
