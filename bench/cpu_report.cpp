// The goals of the CPU backend, each measured against its peer in this process:
//
//   flashcore_cpu_report [--threads N] [--json FILE] [--quick] [--cpu-time]
//
// --cpu-time counts the process's CPU time divided by its threads, instead of wall time, for a
// machine that others use, too. It excludes idle threads and waiting, so results to publish need
// wall time on a quiet machine. Every timed result has passed its gate here first. Takes about two
// minutes on two cores.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/work.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/report_program.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/peers/unfused_blas.hpp"
#include "bench/time/cpu_peak.hpp"
#include "bench/time/timing.hpp"
#include "plan/fingerprints.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Settings {
  int64_t thread_count = std::max(1u, std::thread::hardware_concurrency());
  std::string json;
  bool quick = false;     // fewer repetitions and no sequences past 8192
  bool cpu_time = false;  // the process's CPU time per thread, not wall time

  int threads() const { return static_cast<int>(thread_count); }
};

Settings settings;  // set once, in main

double seconds_now() {
  if (!settings.cpu_time) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec)) /
         settings.threads();
}

Case case_of(DType dtype, int64_t batch, int64_t heads, int64_t seqlen, int64_t head_dim) {
  return square_case(
      fmt::format("({}, {}, {}, {}) {}", batch, heads, seqlen, head_dim, to_string(dtype)), dtype,
      batch, heads, seqlen, head_dim, false);
}

// A problem with data and plan, after its gate has passed.
class Bench {
 public:
  Bench(const Case& one, int threads, double gate_flop = 2e8)
      : host_(make_host_problem(to_problem(one), 0)), name_(one.name) {
    PlanOptions options;
    options.kernel = "cpu_simd";
    options.threads = threads;
    plan_.emplace(taken(make_plan(host_.problem, options)));
    memory_.resize(plan_->workspace_bytes() + 256);
    if (gate_flop > 0) gate(gate_flop, threads);
  }

  void run() {
    const Status status = plan_->run(host_.arguments(), workspace(), plan_->workspace_bytes());
    if (!status.ok()) fail(status.message());
  }

  double flop() { return forward_flop(host_.problem); }
  size_t workspace_bytes() const { return plan_->workspace_bytes(); }
  HostProblem& host() { return host_; }
  const std::string& name() const { return name_; }

 private:
  void* workspace() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (256 - at % 256) % 256;
  }

  void gate(double gate_flop, int threads) {
    const SampledReference reference = taken(SampledReference::compute(host_, gate_flop, threads));
    run();
    const Verdict verdict = reference.judge(host_);
    if (!verdict.passed) fail(fmt::format("{} failed its gate: {}", name_, verdict.failure));
  }

  HostProblem host_;
  std::string name_;
  std::optional<Plan> plan_;
  std::vector<std::byte> memory_;
};

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

// Medians of several subjects, timed in turns so that a slow moment hits all of them. Returns the
// best of `repeats` medians each: other programs only ever add time.
std::vector<double> time_in_turns(const std::vector<std::function<void()>>& subjects, int rounds,
                                  int repeats) {
  std::vector<double> best(subjects.size(), HUGE_VAL);
  for (const auto& subject : subjects) subject();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::vector<std::vector<double>> seconds(subjects.size());
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < subjects.size(); ++i) {
        const double start = seconds_now();
        subjects[i]();
        seconds[i].push_back(seconds_now() - start);
      }
    }
    for (size_t i = 0; i < subjects.size(); ++i) best[i] = std::min(best[i], median(seconds[i]));
  }
  return best;
}

// The fraction of the FMA peak, with the peak measured between the runs.
Json report_peak() {
  Json rows = Json::array();
  fmt::print("share of the fp32 FMA peak, not causal\n");
  for (const auto& [dtype, head_dim] :
       {std::pair{DType::f32, 128}, {DType::f32, 64}, {DType::bf16, 128}, {DType::f16, 128}}) {
    Bench bench(case_of(dtype, 2, 8, 2048, head_dim), settings.threads());
    CpuPeak peak;
    double best = HUGE_VAL;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const CpuPeak probed = measure_cpu_peak(settings.threads(), 0.2, settings.cpu_time);
      if (probed.flop_per_second > peak.flop_per_second) peak = probed;
      best = std::min(best, time_in_turns({[&] { bench.run(); }}, 5, 1)[0]);
    }
    const double rate = bench.flop() / best;
    fmt::print("  {:28} {:8.2f} ms {:8.1f} GFLOP/s, {:5.1f}% of {:.1f} ({})\n", bench.name(),
               best * 1e3, rate * 1e-9, 100 * rate / peak.flop_per_second,
               peak.flop_per_second * 1e-9, peak.what);
    rows.push_back({{"case", bench.name()},
                    {"seconds", best},
                    {"gflop_per_second", rate * 1e-9},
                    {"peak_gflop_per_second", peak.flop_per_second * 1e-9},
                    {"peak", peak.what},
                    {"fraction_of_peak", rate / peak.flop_per_second}});
  }
  return rows;
}

Json report_unfused() {
  Result<UnfusedBlas> peer = UnfusedBlas::load(settings.threads());
  if (!peer.ok()) {
    fmt::print("against unfused BLAS: {}\n", peer.status().message());
    return {{"missing", peer.status().message()}};
  }
  fmt::print("against unfused attention by {}\n", peer->version());
  Json rows = Json::array();
  for (const int64_t head_dim : {64, 128}) {
    Bench bench(case_of(DType::f32, 2, 8, 2048, head_dim), settings.threads());
    HostProblem& host = bench.host();
    std::vector<float> out(static_cast<size_t>(host.at("o").elements()));
    const Arguments args = host.arguments();
    const UnfusedBlas::Inputs in{.q = static_cast<const float*>(args.q),
                                 .k = static_cast<const float*>(args.k),
                                 .v = static_cast<const float*>(args.v),
                                 .o = out.data(),
                                 .heads = 16,
                                 .seqlen_q = 2048,
                                 .seqlen_kv = 2048,
                                 .head_dim = head_dim,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
    const std::vector<double> seconds = time_in_turns(
        {[&] { bench.run(); }, [&] { peer->run_by_operator(in); }, [&] { peer->run_by_head(in); }},
        3, settings.quick ? 1 : 3);
    bench.run();
    double difference = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      difference = std::max(difference,
                            std::abs(host.at("o").get(static_cast<int64_t>(i)) - double{out[i]}));
    }
    if (!(difference < 1e-4)) fail(fmt::format("the unfused peer differs by {}", difference));
    fmt::print(
        "  {:28} {:8.2f} ms; unfused {:.2f} ms operator by operator, {:.2f} head by head:"
        " {:.2f} and {:.2f} times\n",
        bench.name(), seconds[0] * 1e3, seconds[1] * 1e3, seconds[2] * 1e3, seconds[1] / seconds[0],
        seconds[2] / seconds[0]);
    rows.push_back({{"case", bench.name()},
                    {"seconds", seconds[0]},
                    {"unfused_by_operator_seconds", seconds[1]},
                    {"unfused_by_head_seconds", seconds[2]},
                    {"ratio_by_operator", seconds[1] / seconds[0]},
                    {"ratio_by_head", seconds[2] / seconds[0]}});
  }
  return {{"peer", peer->version()}, {"rows", rows}};
}

// In kilobytes, from /proc/self/status; 0 if it is not there.
int64_t status_kilobytes(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::atoll(line.c_str() + field.size() + 1);
  }
  return 0;
}

Json report_scaling() {
  Json rows = Json::array();
  fmt::print("quadratic in S: f32, B 1, H 4, D 64; memory past the tensors themselves\n");
  const int64_t longest = settings.quick ? 8192 : 16384;
  for (int64_t seqlen = 512; seqlen <= longest; seqlen *= 2) {
    Bench bench(case_of(DType::f32, 1, 4, seqlen, 64), settings.threads(),
                seqlen <= 2048 ? 1e8 : 0);
    std::ofstream("/proc/self/clear_refs") << 5;  // restarts VmHWM
    const int64_t before = status_kilobytes("VmRSS");
    bench.run();
    const int64_t most = status_kilobytes("VmHWM");
    const int64_t tensors = 4 * 4 * seqlen * 64 * 4 / 1024;
    const int rounds = seqlen <= 4096 ? 7 : 3;
    const double seconds = time_in_turns({[&] { bench.run(); }}, rounds, 2)[0];
    const double unit = seconds / static_cast<double>(4 * seqlen * seqlen) * 1e9;
    fmt::print(
        "  S {:6} {:9.2f} ms, {:.4f} ns per pair, workspace {} KiB, tensors {} KiB, VmHWM {} KiB, "
        "{} "
        "of it new in the call\n",
        seqlen, seconds * 1e3, unit, bench.workspace_bytes() / 1024, tensors, most, most - before);
    rows.push_back({{"seqlen", seqlen},
                    {"seconds", seconds},
                    {"ns_per_pair", unit},
                    {"workspace_bytes", bench.workspace_bytes()},
                    {"tensor_bytes", tensors * 1024},
                    {"vmhwm_bytes", most * 1024},
                    {"vmhwm_growth_bytes", (most - before) * 1024}});
  }
  Json heads = Json::array();
  fmt::print("linear in B*H: f32, S 1024, D 64\n");
  for (const int64_t n : {4, 8, 16, 32, 64}) {
    Bench bench(case_of(DType::f32, n / 4, 4, 1024, 64), settings.threads(), 1e8);
    const double seconds = time_in_turns({[&] { bench.run(); }}, 7, 2)[0];
    fmt::print("  B*H {:4} {:9.2f} ms, {:.3f} ms per head\n", n, seconds * 1e3,
               seconds * 1e3 / static_cast<double>(n));
    heads.push_back({{"heads", n}, {"seconds", seconds}});
  }
  return {{"seqlen", rows}, {"heads", heads}};
}

// Compares the input types, timed in turns.
Json report_dtypes() {
  Json rows = Json::array();
  fmt::print("input types, time relative to f32\n");
  for (const auto& [seqlen, head_dim] : {std::pair{512, 64}, {2048, 64}, {2048, 128}}) {
    std::vector<Bench> benches;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8e4m3}) {
      benches.emplace_back(case_of(dtype, 1, 8, seqlen, head_dim), settings.threads());
    }
    std::vector<std::function<void()>> subjects;
    for (Bench& bench : benches) subjects.emplace_back([&bench] { bench.run(); });
    const std::vector<double> seconds =
        time_in_turns(subjects, seqlen <= 512 ? 21 : 5, settings.quick ? 1 : 3);
    for (size_t i = 0; i < benches.size(); ++i) {
      fmt::print("  {:28} {:8.2f} ms, {:.3f} of f32\n", benches[i].name(), seconds[i] * 1e3,
                 seconds[i] / seconds[0]);
      rows.push_back({{"case", benches[i].name()},
                      {"seconds", seconds[i]},
                      {"relative_to_f32", seconds[i] / seconds[0]}});
    }
  }
  return rows;
}

// In addition to the goals: other common problems.
Json report_others() {
  Json rows = Json::array();
  fmt::print("others\n");
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Case causal = case_of(dtype, 2, 8, 2048, 128);
    causal.causal = true;
    causal.name += " causal";
    Case decode = case_of(dtype, 1, 32, 8192, 128);
    decode.seqlen_q = 1;
    decode.heads_kv = 8;
    decode.name = fmt::format("decode, 32 over 8 heads, 8192 keys, {}", to_string(dtype));
    cases.insert(cases.end(), {causal, case_of(dtype, 1, 8, 512, 64), decode});
  }
  for (const Case& one : cases) {
    Bench bench(one, settings.threads(), one.seqlen_q == 1 ? 0 : 1e8);
    const double seconds = time_in_turns({[&] { bench.run(); }}, 11, 2)[0];
    fmt::print("  {:44} {:8.3f} ms {:8.1f} GFLOP/s\n", bench.name(), seconds * 1e3,
               bench.flop() / seconds * 1e-9);
    rows.push_back({{"case", bench.name()},
                    {"seconds", seconds},
                    {"gflop_per_second", bench.flop() / seconds * 1e-9}});
  }
  return rows;
}

void report() {
  const BuildInfo build = build_info();
  const char* const clock = settings.cpu_time ? "processor time a thread" : "wall time";
  Json evidence = new_evidence("cpu");
  const std::string processor = evidence["host"]["processor"];
  fmt::print("flashcore {} on {}, {}, {} threads, {}\n", build.version, processor, build.cpu_target,
             settings.threads(), clock);
  evidence["device"] = {{"name", processor},
                        {"kind", "cpu"},
                        {"cpu_target", build.cpu_target},
                        {"threads", settings.threads()}};
  evidence["clock"] = clock;
  evidence["fingerprint"] = cpu_fingerprint("cpu_simd");
  evidence["notes"] = Json::array();
  evidence["peak"] = report_peak();
  evidence["unfused"] = report_unfused();
  evidence["scaling"] = report_scaling();
  evidence["dtypes"] = report_dtypes();
  evidence["others"] = report_others();
  evidence["complete"] = !settings.quick;
  write_report(settings.json, evidence);
}

}  // namespace
}  // namespace flashcore::bench

int main(int count, char** words) {
  using namespace flashcore::bench;
  parse({{"--threads", &settings.thread_count},
         {"--json", &settings.json},
         {"--quick", &settings.quick},
         {"--cpu-time", &settings.cpu_time}},
        count, words);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line as soon as it is measured
  report();
  return 0;
}
