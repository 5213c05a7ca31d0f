#include "cli/ladder_gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/cases/cases.hpp"
#include "bench/cases/fp8_problem.hpp"
#include "bench/cases/random_problem.hpp"
#include "bench/device/execution.hpp"
#include "bench/tensors/random.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

// One run of a rung on poisoned outputs, which end up in `host`.
Status run_once(const std::string& rung, Device device, bench::HostProblem& host) {
  PlanOptions options;
  options.device = device;
  options.kernel = rung;
  const Result<Plan> plan = make_plan(host.problem, options);
  if (!plan.ok()) return plan.status();
  bench::poison_outputs(host);
  Result<bench::Execution> execution = bench::Execution::prepare(*plan, device, host);
  if (!execution.ok()) return execution.status();
  FLASHCORE_RETURN_IF_ERROR(execution->run());
  return execution->fetch();
}

// Whether a second run gives the same bits as the one whose outputs are in `host`.
Result<bool> repeats(const std::string& rung, Device device, bench::HostProblem& host) {
  std::map<std::string, bench::HostTensor, std::less<>> first;
  for (const auto& [name, tensor] : host.tensors) {
    if (bench::is_output(name)) first.emplace(name, tensor);
  }
  FLASHCORE_RETURN_IF_ERROR(run_once(rung, device, host));
  for (const auto& [name, tensor] : first) {
    if (!tensor.same_elements(host.at(name))) return false;
  }
  return true;
}

bench::HostProblem make_inputs(const Problem& problem, DType input, uint64_t seed) {
  if (input == DType::f16) return bench::make_host_problem(problem, seed);
  bench::HostProblem host = bench::allocate(bench::with_fp8_inputs(problem));
  bench::fill_fp8_inputs(host, seed);
  return host;
}

// Any lengths, all three alignments of the diagonal. fp16 problems have any strides too.
bench::HostProblem make_tail(DType input, uint64_t seed) {
  if (input == DType::f16) {
    bench::RandomSpace space;
    space.largest_seqlen = 300;
    space.any_dtype = space.any_feature = space.any_head_dim = space.grouped_heads = false;
    return bench::random_problem(seed, space);
  }
  bench::Random random(seed);
  bench::Case one{.name = "tail", .batch = random.integer(1, 2)};
  one.heads_q = one.heads_kv = random.integer(1, 3);
  one.seqlen_q = random.integer(1, 300);
  one.seqlen_kv = random.chance(0.4) ? one.seqlen_q : random.integer(0, 300);
  one.head_dim = random.pick<int64_t>({64, 128});
  one.causal = random.chance(0.6);
  Problem problem = bench::to_problem(one);
  problem.alignment = random.pick({Alignment::top_left, Alignment::bottom_right, Alignment::given});
  if (problem.alignment == Alignment::given) problem.causal_offset = random.integer(-40, 300);
  return make_inputs(problem, input, seed);
}

class Gater {
 public:
  Gater(const std::vector<LadderRung>& rungs, Device device, const GateOptions& options,
        const std::function<void(const std::string&)>& step)
      : rungs_(rungs), device_(device), options_(options), step_(step) {
    for (const LadderRung& rung : rungs) gates_[rung.name];
  }

  Result<RungGates> run() {
    std::set<DType> inputs;
    for (const LadderRung& rung : rungs_) inputs.insert(rung.input);
    for (const DType input : inputs) {
      FLASHCORE_RETURN_IF_ERROR(table(input));
      FLASHCORE_RETURN_IF_ERROR(tails(input));
    }
    return std::move(gates_);
  }

 private:
  Status table(DType input) {
    for (const bench::Case& shape : bench::gate_shapes()) {
      if (options_.small_only && shape.name != "small") continue;
      for (const bool causal : {false, true}) {
        bench::Case one = shape;
        one.causal = causal;
        const std::string label =
            fmt::format("{} {}{}", to_string(input), one.name, causal ? " causal" : "");
        for (const LadderRung& rung : rungs_) {
          if (rung.input == input) {
            gates_[rung.name].rows.push_back({.shape = one.name, .causal = causal});
          }
        }
        for (const int64_t seed : options_.seeds) {
          step_(fmt::format("gate: {}, seed {}", label, seed));
          bench::HostProblem host =
              make_inputs(bench::to_problem(one), input, static_cast<uint64_t>(seed));
          FLASHCORE_RETURN_IF_ERROR(judge_all(input, host, fmt::format("{} seed {}", label, seed),
                                              seed == options_.seeds.front()));
        }
      }
    }
    return {};
  }

  Status judge_all(DType input, bench::HostProblem& host, const std::string& where, bool repeat) {
    const Result<bench::Reference> reference = bench::compute_reference(host);
    if (!reference.ok()) return reference.status();
    for (const LadderRung& rung : rungs_) {
      if (rung.input != input) continue;
      RungGate& gate = gates_[rung.name];
      GateRow& row = gate.rows.back();
      const bench::Verdict verdict = judge_one(rung, host, *reference);
      ++(verdict.passed ? row.passed : row.failed);
      row.max_scaled_error = std::max(row.max_scaled_error, verdict.max_scaled_error);
      row.relative_error = std::max(row.relative_error, verdict.relative_error);
      row.lse_error = std::max(row.lse_error, verdict.lse_error);
      if (!verdict.passed) {
        note(gate, where, verdict.failure);
      } else if (repeat) {
        const Result<bool> equal = repeats(rung.name, device_, host);
        ++(equal.ok() && *equal ? gate.repeats_equal : gate.repeats_different);
        if (!equal.ok()) note(gate, where, equal.status().message());
        if (equal.ok() && !*equal) note(gate, where, "a second run gave different bits");
      }
    }
    return {};
  }

  Status tails(DType input) {
    for (int64_t n = 0; n < options_.tails; ++n) {
      const auto seed = static_cast<uint64_t>(n);
      if (n % 20 == 0) {
        step_(fmt::format("gate: {} random tails from {}", to_string(input), seed));
      }
      bench::HostProblem host = make_tail(input, seed);
      const Result<bench::Reference> reference = bench::compute_reference(host);
      if (!reference.ok()) return reference.status();
      for (const LadderRung& rung : rungs_) {
        if (rung.input != input) continue;
        RungGate& gate = gates_[rung.name];
        if (refuses(rung, host.problem)) {
          ++gate.tails_refused;
          continue;
        }
        const bench::Verdict verdict = judge_one(rung, host, *reference);
        ++(verdict.passed ? gate.tails_passed : gate.tails_failed);
        if (!verdict.passed) {
          note(gate, fmt::format("tail {} ({})", seed, bench::describe(host.problem)),
               verdict.failure);
        }
      }
    }
    return {};
  }

  bool refuses(const LadderRung& rung, const Problem& problem) const {
    PlanOptions options;
    options.device = device_;
    options.kernel = rung.name;
    return make_plan(problem, options).status().code() == StatusCode::unsupported;
  }

  // An error of the run is a failed verdict.
  bench::Verdict judge_one(const LadderRung& rung, bench::HostProblem& host,
                           const bench::Reference& reference) const {
    const Status status = run_once(rung.name, device_, host);
    if (status.ok()) return bench::judge(host, reference);
    bench::Verdict verdict;
    verdict.failure = status.message();
    return verdict;
  }

  static void note(RungGate& gate, const std::string& where, const std::string& failure) {
    if (gate.failure.empty()) gate.failure = where + ": " + failure;
  }

  const std::vector<LadderRung>& rungs_;
  Device device_;
  const GateOptions& options_;
  const std::function<void(const std::string&)>& step_;
  RungGates gates_;
};

}  // namespace

double RungGate::max_scaled_error() const {
  double worst = 0;
  for (const GateRow& row : rows) worst = std::max(worst, row.max_scaled_error);
  return worst;
}

double RungGate::relative_error() const {
  double worst = 0;
  for (const GateRow& row : rows) worst = std::max(worst, row.relative_error);
  return worst;
}

nlohmann::ordered_json gate_evidence(const RungGate& gate) {
  using Json = nlohmann::ordered_json;
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

Result<RungGates> gate_rungs(const std::vector<LadderRung>& rungs, Device device,
                             const GateOptions& options,
                             const std::function<void(const std::string&)>& step) {
  return Gater(rungs, device, options, step).run();
}

}  // namespace flashcore::cli
