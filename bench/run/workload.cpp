#include "bench/run/workload.hpp"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "bench/cases/work.hpp"
#include "bench/device/device_memory.hpp"
#include "bench/device/execution.hpp"
#include "bench/run/largest_values.hpp"
#include "bench/run/one_piece.hpp"
#include "bench/run/tiled_tensors.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "problem/dtype.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr double kLargestReference = 2e9;  // above it, rows are sampled
constexpr double kSampledWork = 1e9;

class GivenWorkload final : public Workload {
 public:
  static Result<std::unique_ptr<Workload>> make(HostProblem host, const PlanOptions& options) {
    std::unique_ptr<GivenWorkload> workload(new GivenWorkload);
    workload->device_ = options.device;
    workload->host_ = std::move(host);
    if (Status status = workload->make_reference(options.threads); !status.ok()) return status;
    return std::unique_ptr<Workload>(std::move(workload));
  }

  Result<TimedCall> prepare(const Plan& plan) override {
    poison_outputs(host_);
    Result<Execution> execution = Execution::prepare(plan, device_, host_);
    if (!execution.ok()) return execution.status();
    executions_.push_back(std::make_unique<Execution>(std::move(*execution)));
    return TimedCall(
        [last = executions_.back().get()](Stream stream) { return last->run(stream); });
  }

  Result<Verdict> judge() override {
    FLASHCORE_RETURN_IF_ERROR(executions_.back()->fetch());
    if (const auto* sampled = std::get_if<SampledReference>(&reference_)) {
      Verdict verdict = sampled->judge(host_);
      const ReadElements elements = reader_of(host_);
      verdict.note(largest_values_failure(host_.problem, elements, elements));
      return verdict;
    }
    return bench::judge(host_, std::get<Reference>(reference_));
  }

  std::string judged() const override {
    const auto* sampled = std::get_if<SampledReference>(&reference_);
    return sampled == nullptr ? "all rows" : sampled->judged();
  }

  double flop() override { return forward_flop(host_); }

 private:
  Status make_reference(int threads) {
    const Problem& p = host_.problem;
    const bool simple = !p.cu_seqlens_q && !p.bias && !p.mask && !p.alibi_slopes && !p.sinks &&
                        !p.seqlens_q && !p.seqlens_kv && !p.causal_offsets && !p.page_table &&
                        !p.kv_indptr && !p.cache_leftpad && !p.tree_mask && p.dropout_p == 0;
    if (simple && forward_flop(host_) > kLargestReference) {
      Result<SampledReference> sampled = SampledReference::compute(host_, kSampledWork, threads);
      if (!sampled.ok()) return sampled.status();
      reference_ = std::move(*sampled);
      return {};
    }
    Result<Reference> whole = compute_reference(host_, threads);
    if (!whole.ok()) return whole.status();
    reference_ = std::move(*whole);
    return {};
  }

  Device device_;
  HostProblem host_;
  std::variant<Reference, SampledReference> reference_;
  std::vector<std::unique_ptr<Execution>> executions_;
};

class DeviceTiles final : public TiledWorkload {
 public:
  DeviceTiles(const Problem& problem, std::unique_ptr<DeviceMemory> memory)
      : problem_(problem), tensors_(std::move(memory)) {}

  Status fill(const TiledInputs& inputs, std::span<const int32_t> keys, int64_t copies) {
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("q", problem_.q, inputs));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("k", problem_.k, inputs));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("v", problem_.v, inputs));
    copies_.emplace_back();
    for (int64_t i = 1; i < copies; ++i) {
      copies_.push_back(fmt::format(" {}", i));
      FLASHCORE_RETURN_IF_ERROR(tensors_.add_copy("k" + copies_.back(), problem_.k, "k"));
      FLASHCORE_RETURN_IF_ERROR(tensors_.add_copy("v" + copies_.back(), problem_.v, "v"));
    }
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_features(problem_));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_lengths(problem_, keys));
    flop_ = forward_flop(problem_, {.seqlens_kv = problem_.seqlens_kv ? keys.data() : nullptr});
    for (const LargestValue& one : kLargestOutputs) {
      const std::optional<TensorDesc>& desc = problem_.*one.tensor;
      if (desc) FLASHCORE_RETURN_IF_ERROR(tensors_.add_output(one.name, *desc));
    }
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_output("o", problem_.o));
    return problem_.lse ? tensors_.add_output("lse", *problem_.lse) : Status();
  }

  Status make_reference(int threads) {
    Result<SampledReference> reference = SampledReference::compute(
        in_one_piece(problem_), in_one_piece(problem_, tensors_.inputs()), kSampledWork, threads);
    if (!reference.ok()) return reference.status();
    reference_ = std::move(*reference);
    return {};
  }

  Result<TimedCall> prepare(const Plan& plan) override {
    FLASHCORE_RETURN_IF_ERROR(tensors_.poison());
    const size_t bytes = plan.workspace_bytes();
    const Result<void*> workspace = tensors_.workspace(bytes);
    if (!workspace.ok()) return workspace.status();
    std::vector<TimedCall> calls;
    for (const std::string& copy : copies_) {
      calls.emplace_back([plan, arguments = arguments(copy), memory = *workspace, bytes](
                             Stream stream) { return plan.run(arguments, memory, bytes, stream); });
    }
    return round_robin(std::move(calls));
  }

  Result<TimedCall> prepare(NativePeer& peer) override {
    FLASHCORE_RETURN_IF_ERROR(tensors_.poison());
    std::vector<TimedCall> calls;
    for (const std::string& copy : copies_) {
      Result<TimedCall> call = peer.prepare(problem_, arguments(copy));
      if (!call.ok()) return call;
      calls.push_back(std::move(*call));
    }
    return round_robin(std::move(calls));
  }

  Result<Verdict> judge() override { return judge(problem_.lse.has_value()); }
  Result<Verdict> judge_output() override { return judge(false); }

  std::string judged() const override { return reference_.judged(); }
  double flop() override { return flop_; }
  const JudgedRows* rows() const override { return &reference_; }

 private:
  // `copy`: the suffix of the names of K and V.
  Arguments arguments(const std::string& copy) {
    return bind(problem_, [&](std::string_view name) {
      const bool has_copies = name == "k" || name == "v";
      return tensors_.pointer(has_copies ? std::string(name) + copy : std::string(name));
    });
  }

  static TimedCall round_robin(std::vector<TimedCall> calls) {
    if (calls.size() == 1) return std::move(calls.front());
    return [calls = std::move(calls), next = size_t{0}](Stream stream) mutable {
      const size_t now = next;
      next = (next + 1) % calls.size();
      return calls[now](stream);
    };
  }

  Result<Verdict> judge(bool with_lse) {
    FLASHCORE_RETURN_IF_ERROR(tensors_.fetch());
    Verdict verdict = reference_.judge(tensors_.outputs(), with_lse);
    verdict.note(tensors_.unwritten("o"));
    verdict.note(largest_values_failure(problem_, tensors_.inputs(), tensors_.outputs()));
    verdict.note(tensors_.overrun());
    return verdict;
  }

  Problem problem_;
  TiledTensors tensors_;
  std::vector<std::string> copies_;
  SampledReference reference_;
  double flop_ = 0;
};

}  // namespace

Result<std::unique_ptr<Workload>> given_workload(Result<HostProblem> host,
                                                 const PlanOptions& options) {
  if (!host.ok()) return host.status();
  return GivenWorkload::make(std::move(*host), options);
}

Result<std::unique_ptr<TiledWorkload>> TiledWorkload::make(const Problem& problem,
                                                           std::span<const int32_t> keys,
                                                           int64_t copies,
                                                           const TiledInputs& inputs,
                                                           const PlanOptions& options) {
  FLASHCORE_RETURN_IF_ERROR(check_memory(problem));
  Result<std::unique_ptr<DeviceMemory>> memory = device_memory(options.device);
  if (!memory.ok()) return memory.status();
  auto workload = std::make_unique<DeviceTiles>(problem, std::move(*memory));
  FLASHCORE_RETURN_IF_ERROR(workload->fill(inputs, keys, copies));
  FLASHCORE_RETURN_IF_ERROR(workload->make_reference(options.threads));
  return std::unique_ptr<TiledWorkload>(std::move(workload));
}

}  // namespace flashcore::bench
