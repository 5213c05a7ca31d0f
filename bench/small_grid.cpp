// flashcore_small_grid: gates and times every candidate kernel on a grid of small problems. The
// cost model that chooses between them (src/tuning) is fitted and tested with these data.
//
//   flashcore_small_grid OUT.json [grid|eager] [f16|bf16|both] [seconds]
//
// grid: 68 shapes; eager: a few, and a call's cost on the host. Both types of a shape are measured
// one after the other. Stops after `seconds` and writes what it has.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/device/cuda_environment.hpp"
#include "bench/device/execution.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/report_program.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/tensors/tiled_inputs.hpp"
#include "bench/time/cuda_timer.hpp"
#include "bench/time/launched.hpp"
#include "flashcore/flashcore.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using nlohmann::ordered_json;

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr double kGateWork = 1e7;
constexpr CudaProtocol kGridProtocol{"grid", 1e-3, 2, 9, 0};

struct Candidate {
  std::string kernel;
  bool early = false;
  std::string name() const { return kernel + (early ? " early" : ""); }
};

struct Shape {
  int64_t heads, seqlen, head_dim;
  bool causal;
};

Case square(DType dtype, const Shape& shape) {
  Case one{.name = "", .dtype = dtype};
  one.heads_q = one.heads_kv = shape.heads;
  one.seqlen_q = one.seqlen_kv = shape.seqlen;
  one.head_dim = shape.head_dim;
  one.causal = shape.causal;
  return one;
}

std::vector<Shape> eager_shapes() {
  std::vector<Shape> all;
  for (const bool causal : {false, true}) {
    all.push_back({8, 512, 64, causal});
    all.push_back({8, 128, 64, causal});
    all.push_back({8, 512, 128, causal});
  }
  return all;
}

// All reports' small problems, and some similar ones. The mission shape comes first; masks and head
// dimensions vary fastest, so that a run that is cut short has all of them.
std::vector<Shape> grid_shapes() {
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (const int64_t seqlen : {512, 256, 1024, 128}) {
    for (const int64_t heads : {8, 16, 32}) sizes.emplace_back(heads, seqlen);
  }
  for (const auto& more :
       {std::pair<int64_t, int64_t>{1, 512}, {2, 1024}, {4, 2048}, {64, 128}, {64, 256}}) {
    sizes.push_back(more);
  }
  std::vector<Shape> all;
  for (const auto& [heads, seqlen] : sizes) {
    for (const int64_t head_dim : {64, 128}) {
      for (const bool causal : {false, true}) all.push_back({heads, seqlen, head_dim, causal});
    }
  }
  return all;
}

std::string text_of(const Case& one) {
  return fmt::format("({},{},{},{}) {}{}", one.batch, one.heads_q, one.seqlen_q, one.head_dim,
                     to_string(one.dtype), one.causal ? " causal" : "");
}

// Host time of a call only: makes a few calls, fewer than the stream can hold, before
// waiting for anything.
template <class Call>
Result<double> enqueue_seconds(const Call& call, cudaStream_t stream) {
  constexpr int kCalls = 100;
  double best = 1;
  for (int round = 0; round < 5; ++round) {
    if (cudaStreamSynchronize(stream) != cudaSuccess) break;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) FLASHCORE_RETURN_IF_ERROR(call(Stream{stream}));
    const auto end = std::chrono::steady_clock::now();
    best = std::min(best, std::chrono::duration<double>(end - start).count() / kCalls);
  }
  (void)cudaStreamSynchronize(stream);
  return best;
}

// Measures one candidate on one problem, or returns its refusal.
ordered_json measure(HostProblem& host, const SampledReference& reference,
                     const Candidate& candidate, CudaTimer& timer, bool eager) {
  PlanOptions options;
  options.device = kGpu;
  options.kernel = candidate.kernel;
  options.early_start = candidate.early;
  ordered_json row = {{"kernel", candidate.name()}};
  poison_outputs(host);
  const Status status = [&]() -> Status {
    const Result<Plan> plan = make_plan(host.problem, options);
    if (!plan.ok()) return plan.status();
    Result<bench::Execution> execution = bench::Execution::prepare(*plan, kGpu, host);
    if (!execution.ok()) return execution.status();
    FLASHCORE_RETURN_IF_ERROR(execution->run());
    FLASHCORE_RETURN_IF_ERROR(execution->fetch());
    const Verdict verdict = reference.judge(host);
    if (!verdict.passed) return {StatusCode::internal, "gate: " + verdict.failure};
    const auto call = [&](Stream stream) { return execution->run(stream); };
    const Result<std::set<std::string>> launched = bench::launched_by(call, kGpu);
    if (!launched.ok()) return launched.status();
    row["fingerprint"] = fingerprint_of(candidate.kernel, kGpu, *launched);
    const Result<Timing> timing = timer.time(call);
    if (!timing.ok()) return timing.status();
    row["us"] = timing->p50 * 1e6;
    row["p90_us"] = timing->p90 * 1e6;
    if (!eager) return {};
    const Result<double> host_seconds = timer.host_seconds(call);
    if (!host_seconds.ok()) return host_seconds.status();
    row["eager_us"] = *host_seconds * 1e6;
    const Result<double> enqueue = enqueue_seconds(call, timer.stream());
    if (!enqueue.ok()) return enqueue.status();
    row["enqueue_us"] = *enqueue * 1e6;
    return {};
  }();
  if (!status.ok()) row["error"] = status.message();
  return row;
}

// The kernel that is chosen without a request.
std::string chosen_kernel(const Problem& problem) {
  PlanOptions options;
  options.device = kGpu;
  const Result<Plan> plan = make_plan(problem, options);
  return plan.ok() ? std::string(plan->kernel()) : plan.status().message();
}

void run(const std::string& out, const std::string& what, const std::vector<DType>& dtypes,
         double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<CudaTimer> timer = taken(CudaTimer::create(kGpu.index, kGridProtocol));
  std::vector<Candidate> candidates = {{"forward_sm90_latency"},
                                       {"forward_sm90_latency:wide"},
                                       {"forward_sm80_latency"},
                                       {"forward_sm90_throughput"},
                                       {"forward_sm80_throughput"}};
  if (what == "eager") candidates.push_back({"forward_sm90_latency", true});
  std::vector<TiledInputs> inputs;
  for (const DType dtype : dtypes) inputs.emplace_back(dtype);
  std::vector<std::pair<Case, const TiledInputs*>> cases;
  const auto shapes = what == "grid" ? grid_shapes() : eager_shapes();
  for (const Shape& shape : shapes) {
    for (size_t t = 0; t < dtypes.size(); ++t) {
      cases.emplace_back(square(dtypes[t], shape), &inputs[t]);
    }
  }
  ordered_json evidence = new_evidence("small_grid");
  evidence["device"] = cuda_environment(kGpu.index);
  evidence["timing"] = timer->protocol();
  ordered_json& rows = evidence["rows"] = ordered_json::array();
  bool complete = true;
  for (const auto& [one, values] : cases) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) {
      complete = false;
      break;
    }
    HostProblem host = allocate(to_problem(one));
    for (const char* const name : {"q", "k", "v"}) values->read(name, 0, host.at(name));
    const SampledReference reference = taken(SampledReference::compute(host, kGateWork));
    ordered_json row = {{"dtype", to_string(one.dtype)},
                        {"heads", one.heads_q},
                        {"seqlen", one.seqlen_q},
                        {"head_dim", one.head_dim},
                        {"causal", one.causal},
                        {"chosen", chosen_kernel(host.problem)},
                        {"kernels", ordered_json::array()}};
    std::string line = fmt::format("{:29}", text_of(one));
    for (const Candidate& candidate : candidates) {
      const ordered_json cell = measure(host, reference, candidate, *timer, what == "eager");
      if (cell.contains("us")) {
        line += fmt::format("  {} {:.2f}", candidate.name(), cell["us"].get<double>());
        if (cell.contains("eager_us")) {
          line += fmt::format(" (eager {:.2f}, host {:.2f})", cell["eager_us"].get<double>(),
                              cell["enqueue_us"].get<double>());
        }
      } else {
        line += fmt::format("  {}: {}", candidate.name(), cell["error"].get<std::string>());
      }
      row["kernels"].push_back(cell);
    }
    fmt::print("{}\n", line);
    std::fflush(stdout);
    rows.push_back(row);
  }
  evidence["complete"] = complete;
  write_report(out, evidence);
}

}  // namespace
}  // namespace flashcore::bench

int main(int argc, char** argv) {
  using flashcore::DType;
  const std::string what = argc > 2 ? argv[2] : "grid", dtype = argc > 3 ? argv[3] : "f16";
  std::vector<DType> dtypes;
  if (dtype == "f16" || dtype == "both") dtypes.push_back(DType::f16);
  if (dtype == "bf16" || dtype == "both") dtypes.push_back(DType::bf16);
  const bool known = (what == "grid" || what == "eager") && !dtypes.empty();
  if (argc < 2 || argc > 5 || !known) {
    fmt::print(stderr,
               "usage: flashcore_small_grid OUT.json [grid|eager] [f16|bf16|both] [seconds]\n");
    return 2;
  }
  flashcore::bench::run(argv[1], what, dtypes, argc > 4 ? std::atof(argv[4]) : 60);
  return 0;
}
