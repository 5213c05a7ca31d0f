// The error of each fp8 kernel: the evidence behind the picture in docs/forward-fp8.md.
//
// Inputs are drawn in fp32, and quantised to e4m3 with a scale per head, or rounded to bf16. A
// kernel is judged by the fp64 reference of its own inputs, so the errors are its own; the loss in
// the inputs is a separate row, "inputs". fp8 kernels write an f32 O, so that its rounding hides
// nothing; bf16's is bf16. Takes a minute on two cores, and almost no GPU time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cases/fp8_cases.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/gate/gates.hpp"
#include "bench/tensors/quantized.hpp"
#include "bench/time/meter.hpp"
#include "bench/verify/errors.hpp"
#include "bench/verify/kernel.hpp"
#include "plan/fingerprints.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kHeadsQ = 4, kHeadsKv = 2;
constexpr uint64_t kSeed = 0;
constexpr const char* kBf16Kernel = "forward_sm90_throughput";
constexpr const char* kFp8Kernels[] = {"forward_fp8_sm90",
                                       "forward_fp8_sm90:192x64",
                                       "forward_fp8_sm90:precise",
                                       "forward_fp8_sm90:options",
                                       "forward_fp8_sm89",
                                       "forward_fp8_sm89:precise",
                                       "forward_sm80_throughput:fp8",
                                       "forward_converted:fp8"};

HostProblem in_bf16(const HostProblem& wide) {
  Problem problem = wide.problem;
  for (TensorDesc* const desc : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    desc->dtype = DType::bf16;
  }
  HostProblem host = allocate(problem);
  for (const char* const name : {"q", "k", "v"}) {
    const HostTensor& from = wide.at(name);
    HostTensor& to = host.at(name);
    for (int64_t i = 0; i < from.elements(); ++i) to.set(i, from.get(i));
  }
  return host;
}

// The loss in the inputs: `after` is the reference for the rounded inputs.
Verdict loss(const Reference& before, const Reference& after) {
  Verdict lost;
  double square = 0, size = 0;
  for (size_t i = 0; i < before.o.size(); ++i) {
    const double want = before.o[i], off = std::abs(after.o[i] - want);
    lost.max_scaled_error = std::max(lost.max_scaled_error, off / std::max(1.0, std::abs(want)));
    square += off * off;
    size += want * want;
  }
  lost.relative_error = std::sqrt(square / size);
  for (size_t i = 0; i < before.lse.size(); ++i) {
    lost.lse_error = std::max(lost.lse_error, std::abs(after.lse[i] - before.lse[i]));
  }
  return lost;
}

// A simulated GPU has only a name.
Result<nlohmann::ordered_json> device_json(const PlanOptions& plan) {
  if (plan.device.kind == DeviceKind::sim) {
    return nlohmann::ordered_json{{"name", info_of(plan.device).name}};
  }
  const Result<std::unique_ptr<Meter>> meter = make_meter(plan.device, plan.threads);
  if (!meter.ok()) return meter.status();
  return (*meter)->environment();
}

class Errors {
 public:
  Errors(const PlanOptions& plan, int64_t seqlen, const Say& say)
      : plan_(plan), seqlen_(seqlen), say_(say) {}

  // All rows of a kind of data.
  Status measure(const Fp8Data& data, int64_t head_dim) {
    data_ = data.name;
    head_dim_ = head_dim;
    HostProblem wide =
        draw(data, {1, kHeadsQ, seqlen_, head_dim}, {1, kHeadsKv, seqlen_, head_dim}, kSeed);
    const Result<Reference> before = reference_of(wide);
    if (!before.ok()) return before.status();
    HostProblem half = in_bf16(wide);
    FLASHCORE_RETURN_IF_ERROR(judge_all(half, *before, {kBf16Kernel}));
    Result<QuantizedProblem> narrow =
        quantized(wide, QuantizeChoice{}, cpu_quantizer(plan_.threads));
    if (!narrow.ok()) return narrow.status();
    return judge_all(narrow->host, *before, {std::begin(kFp8Kernels), std::end(kFp8Kernels)});
  }

  nlohmann::ordered_json rows = nlohmann::ordered_json::array();

 private:
  Result<Reference> reference_of(HostProblem& host) const {
    Result<Reference> right = compute_reference(host, plan_.threads, false);
    if (right.ok()) right->lse_rounding = 0;  // show errors unadjusted
    return right;
  }

  // `before`: the reference for the numbers that the inputs of `host` were rounded from.
  Status judge_all(HostProblem& host, const Reference& before,
                   const std::vector<std::string>& kernels) {
    const Result<Reference> right = reference_of(host);
    if (!right.ok()) return right.status();
    add("inputs", "", host, loss(before, *right));
    const Result<std::vector<KernelVerdict>> tested =
        kernels_under_test({host.problem}, plan_, true, kernels);
    if (!tested.ok()) return tested.status();
    for (const KernelVerdict& kernel : *tested) {
      if (!kernel.refusal.empty()) {
        say_(kernel.kernel + ": " + kernel.refusal);
        continue;
      }
      std::set<std::string> launched;
      FLASHCORE_RETURN_IF_ERROR(run_kernel(host, plan_, kernel.kernel, &launched));
      const Verdict verdict = judge(host, *right);
      if (!std::isfinite(verdict.relative_error) || verdict.relative_error == 0) {
        return {StatusCode::internal,
                fmt::format("{} of {}: {}", kernel.kernel, data_, verdict.failure)};
      }
      add(kernel.kernel, fingerprint_of(kernel.kernel, plan_.device, launched), host, verdict);
    }
    return {};
  }

  void add(const std::string& name, const std::string& fingerprint, const HostProblem& host,
           const Verdict& verdict) {
    const std::string_view dtype = to_string(host.problem.q.dtype);
    say_(fmt::format("{:8} D {:3} {:6} {:25} relative {:.2e}  scaled {:.2e}  LSE {:.2e}", data_,
                     head_dim_, dtype, name, verdict.relative_error, verdict.max_scaled_error,
                     verdict.lse_error));
    rows.push_back({{"data", data_},
                    {"head_dim", head_dim_},
                    {"dtype", dtype},
                    {"implementation", name},
                    {"fingerprint", fingerprint},
                    {"relative_error", verdict.relative_error},
                    {"max_scaled_error", verdict.max_scaled_error},
                    {"lse_error", verdict.lse_error}});
  }

  const PlanOptions& plan_;
  int64_t seqlen_;
  const Say& say_;
  std::string data_;
  int64_t head_dim_ = 0;
};

}  // namespace

Result<nlohmann::ordered_json> fp8_errors(const PlanOptions& plan, int64_t seqlen, const Say& say) {
  Errors errors(plan, seqlen, say);
  for (const int64_t head_dim : {128, 64}) {
    for (const Fp8Data& data : fp8_data()) {
      FLASHCORE_RETURN_IF_ERROR(errors.measure(data, head_dim));
    }
  }
  const Result<nlohmann::ordered_json> device = device_json(plan);
  if (!device.ok()) return device.status();
  nlohmann::ordered_json evidence = new_evidence("fp8_accuracy");
  evidence["device"] = *device;
  evidence["shape"] =
      fmt::format("{} heads of queries over {}, {} queries and keys", kHeadsQ, kHeadsKv, seqlen);
  evidence["seqlen"] = seqlen;
  evidence["rows"] = errors.rows;
  evidence["complete"] = true;
  return evidence;
}

}  // namespace flashcore::bench
