#include "bench/run/backward_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/cases/work.hpp"
#include "bench/device/execution.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "bench/run/tiled_tensors.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

// Operations of the fp64 reference and the naive computation, about a second per core for each 1e9.
constexpr double kMostOperations = 1e11;  // no gate for all gradients above this
constexpr double kLargestWhole = 2e10;    // above it, rows are judged

class GivenBackward final : public Workload {
 public:
  static Result<std::unique_ptr<Workload>> make(HostBackward host, const PlanOptions& options) {
    std::unique_ptr<GivenBackward> workload(new GivenBackward(std::move(host)));
    workload->device_ = options.device;
    const HostBackward& made = workload->host_;
    Status status = judged_by_rows(made.forward.problem, made.gradients)
                        ? workload->sample(options.threads)
                        : workload->make_reference(options.threads);
    if (!status.ok()) return status;
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
    if (!sampled_) return bench::judge(host_, reference_);
    Verdict verdict = sampled_->judge(reader());
    verdict.note(overrun(host_.forward.tensors));
    verdict.note(overrun(host_.tensors));
    for (const auto& [name, tensor] : host_.tensors) {
      if (is_gradient_output(name)) verdict.note(unwritten(name, tensor));
    }
    return verdict;
  }

  std::string judged() const override { return sampled_ ? sampled_->judged() : "all rows"; }
  double flop() override { return backward_flop(host_.forward); }

 private:
  explicit GivenBackward(HostBackward host) : host_(std::move(host)) {}

  ReadElements reader() const {
    return [this](std::string_view name, int64_t begin, HostTensor& to) {
      const HostTensor& from = host_.forward.has(name) ? host_.forward.at(name) : host_.at(name);
      for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(begin + i));
    };
  }

  Status make_reference(int threads) {
    FLASHCORE_RETURN_IF_ERROR(run_on_cpu("reference", host_.forward, threads));
    Result<GradientReferences> reference = compute_reference(host_, threads, true);
    if (!reference.ok()) return reference.status();
    reference_ = std::move(*reference);
    return {};
  }

  Status sample(int threads) {
    FLASHCORE_RETURN_IF_ERROR(run_on_cpu("", host_.forward, threads));
    Result<SampledGradients> sampled =
        SampledGradients::compute(host_.forward.problem, host_.gradients,
                                  {.read = reader(),
                                   .dropout_seed = host_.forward.dropout_seed,
                                   .dropout_offset = host_.forward.dropout_offset},
                                  threads);
    if (!sampled.ok()) return sampled.status();
    sampled_ = std::move(*sampled);
    sampled_->write_forward([&](std::string_view name, int64_t begin, const HostTensor& from) {
      HostTensor& to = host_.forward.at(name);
      for (int64_t i = 0; i < from.elements(); ++i) to.set(begin + i, from.get(i));
    });
    return {};
  }

  Device device_;
  HostBackward host_;
  GradientReferences reference_;             // covers all rows
  std::optional<SampledGradients> sampled_;  // otherwise
  std::vector<std::unique_ptr<Execution>> executions_;
};

class DeviceBackward final : public Workload {
 public:
  DeviceBackward(const Problem& problem, const Gradients& gradients,
                 std::unique_ptr<DeviceMemory> memory)
      : problem_(problem), gradients_(gradients), tensors_(std::move(memory)) {}

  Status fill(const TiledInputs& inputs) {
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("q", problem_.q, inputs));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("k", problem_.k, inputs));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("v", problem_.v, inputs));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_input("d_o", gradients_.d_o, inputs));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_features(problem_));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_memory("o", problem_.o));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_memory("lse", *problem_.lse));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_output("dq", gradients_.dq));
    FLASHCORE_RETURN_IF_ERROR(tensors_.add_output("dk", gradients_.dk));
    return tensors_.add_output("dv", gradients_.dv);
  }

  Status make_reference(const PlanOptions& options) {
    Result<SampledGradients> reference = SampledGradients::compute(
        problem_, gradients_, {.read = tensors_.inputs()}, options.threads);
    if (!reference.ok()) return reference.status();
    reference_ = std::move(*reference);
    FLASHCORE_RETURN_IF_ERROR(run_forward_here(options));
    return correct_forward();
  }

  Result<TimedCall> prepare(const Plan& plan) override {
    FLASHCORE_RETURN_IF_ERROR(tensors_.poison());
    const size_t bytes = plan.workspace_bytes();
    const Result<void*> workspace = tensors_.workspace(bytes);
    if (!workspace.ok()) return workspace.status();
    const BackwardArguments arguments =
        bind(gradients_, forward_arguments(),
             [this](std::string_view name) { return tensors_.pointer(name); });
    return TimedCall([plan, arguments, memory = *workspace, bytes](Stream stream) {
      return plan.run(arguments, memory, bytes, stream);
    });
  }

  Result<Verdict> judge() override {
    FLASHCORE_RETURN_IF_ERROR(tensors_.fetch());
    Verdict verdict = reference_.judge(tensors_.outputs());
    for (const char* const name : {"dq", "dk", "dv"}) verdict.note(tensors_.unwritten(name));
    verdict.note(tensors_.overrun());
    return verdict;
  }

  std::string judged() const override { return reference_.judged(); }

  double flop() override {
    if (!problem_.cu_seqlens_q) return backward_flop(problem_);
    const int64_t batch = problem_.cu_seqlens_q->shape[0] - 1;
    const std::vector<int32_t> of_q =
        packed_starts(problem_.q.shape[0], batch, problem_.max_seqlen_q);
    const std::vector<int32_t> of_kv =
        packed_starts(problem_.k.shape[0], batch, problem_.max_seqlen_kv);
    Arguments lengths;
    lengths.cu_seqlens_q = of_q.data();
    lengths.cu_seqlens_kv = of_kv.data();
    return backward_flop(problem_, lengths);
  }

  const JudgedRows* rows() const override { return &reference_; }

 private:
  Arguments forward_arguments() {
    return bind(problem_, [this](std::string_view name) { return tensors_.pointer(name); });
  }

  Status run_forward_here(const PlanOptions& options) {
    PlanOptions forward;
    forward.device = options.device;
    forward.threads = options.threads;
    const Result<Plan> plan = make_plan(problem_, forward);
    if (!plan.ok()) return plan.status();
    const Result<void*> workspace = tensors_.workspace(plan->workspace_bytes());
    if (!workspace.ok()) return workspace.status();
    FLASHCORE_RETURN_IF_ERROR(tensors_.memory().synchronise());
    FLASHCORE_RETURN_IF_ERROR(
        plan->run(forward_arguments(), *workspace, plan->workspace_bytes(), Stream{}));
    return tensors_.memory().synchronise();
  }

  // O and LSE of the judged heads must be the reference's.
  Status correct_forward() {
    HostTensor o(problem_.o), lse(*problem_.lse);
    FLASHCORE_RETURN_IF_ERROR(tensors_.memory().copy_out(o.bytes(), tensors_.pointer("o")));
    FLASHCORE_RETURN_IF_ERROR(tensors_.memory().copy_out(lse.bytes(), tensors_.pointer("lse")));
    reference_.write_forward([&](std::string_view name, int64_t begin, const HostTensor& from) {
      HostTensor& to = name == "o" ? o : lse;
      const auto at = begin * static_cast<int64_t>(size_of(from.desc().dtype));
      std::copy(from.bytes().begin(), from.bytes().end(), to.bytes().begin() + at);
    });
    FLASHCORE_RETURN_IF_ERROR(tensors_.memory().copy_in(tensors_.pointer("o"), o.bytes()));
    return tensors_.memory().copy_in(tensors_.pointer("lse"), lse.bytes());
  }

  Problem problem_;
  Gradients gradients_;
  TiledTensors tensors_;
  SampledGradients reference_;
};

}  // namespace

Gradients plain_gradients(const Problem& problem) {
  Gradients gradients = gradients_of(problem, false);
  gradients.d_bias.reset();
  gradients.d_sinks.reset();
  gradients.d_alibi_slopes.reset();
  return gradients;
}

bool judged_by_rows(const Problem& problem, const Gradients& gradients) {
  return backward_flop(problem) > kLargestWhole &&
         SampledGradients::refusal(problem, gradients).empty();
}

std::string gate_refusal(const Problem& problem, const Gradients& gradients) {
  const std::string of_rows = SampledGradients::refusal(problem, gradients);
  return of_rows.empty() || backward_flop(problem) <= kMostOperations ? "" : of_rows;
}

Result<std::unique_ptr<Workload>> given_backward_workload(HostBackward host,
                                                          const PlanOptions& options) {
  return GivenBackward::make(std::move(host), options);
}

Result<std::unique_ptr<Workload>> tiled_backward_workload(const Problem& problem,
                                                          const Gradients& gradients,
                                                          const TiledInputs& inputs,
                                                          const PlanOptions& options) {
  FLASHCORE_RETURN_IF_ERROR(check_memory(problem, gradients));
  Result<std::unique_ptr<DeviceMemory>> memory = device_memory(options.device);
  if (!memory.ok()) return memory.status();
  auto workload = std::make_unique<DeviceBackward>(problem, gradients, std::move(*memory));
  FLASHCORE_RETURN_IF_ERROR(workload->fill(inputs));
  FLASHCORE_RETURN_IF_ERROR(workload->make_reference(options));
  return std::unique_ptr<Workload>(std::move(workload));
}

}  // namespace flashcore::bench
