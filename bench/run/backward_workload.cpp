#include "bench/run/backward_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases/work.hpp"
#include "bench/device/execution.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

// Of the fp64 reference and the naive computation, about a second on a core for each 1e9.
constexpr double kMostOperations = 1e11;  // a gate that takes more is not computed
constexpr double kLargestWhole = 2e10;    // past it, heads are sampled

int64_t heads_kv(const Problem& problem) { return problem.k.shape[0] * problem.k.shape[1]; }

double gate_operations(const Problem& problem, JudgedHeads heads) {
  const double all = backward_flop(problem);
  if (heads == JudgedHeads::all) return all;
  return all / static_cast<double>(heads_kv(problem)) * (problem.dropout_p > 0 ? 1 : 2);
}

// Elements [begin, begin + elements) of a contiguous tensor.
std::span<std::byte> elements(HostTensor& tensor, int64_t begin, int64_t count) {
  const size_t size = size_of(tensor.desc().dtype);
  return {static_cast<std::byte*>(tensor.data()) + static_cast<size_t>(begin) * size,
          static_cast<size_t>(count) * size};
}

// A head of keys and its group of queries, as a problem of its own.
struct Head {
  int64_t batch, head;  // of the keys
  HostBackward host;
  GradientReferences reference;
};

// The part of a whole tensor that belongs to a head: [B|1, H|1, ...], or [H] (slopes).
std::span<std::byte> part_of(HostTensor& whole, const HostTensor& part, const Head& head) {
  const TensorDesc& desc = whole.desc();
  const int64_t heads = desc.rank == 1 ? desc.shape[0] : desc.shape[1];
  const int64_t own_heads = part.desc().rank == 1 ? part.desc().shape[0] : part.desc().shape[1];
  const int64_t batches = desc.rank == 1 ? 1 : desc.shape[0];
  const int64_t of_one = whole.elements() / (heads * batches);
  const int64_t first = heads == 1 ? 0 : head.head * own_heads;
  const int64_t entry = batches == 1 ? 0 : head.batch;
  return elements(whole, (entry * heads + first) * of_one, part.elements());
}

// The description of a tensor with one batch entry and one head of keys.
TensorDesc of_one_head(const TensorDesc& desc, int64_t heads_of_keys) {
  std::vector<int64_t> shape(desc.shape.begin(), desc.shape.begin() + desc.rank);
  const size_t heads = desc.rank == 1 ? 0 : 1;
  if (desc.rank > 1) shape[0] = 1;
  if (shape[heads] > 1) shape[heads] /= heads_of_keys;
  return contiguous(desc.dtype, shape);
}

class BackwardWorkload final : public Workload {
 public:
  static Result<std::unique_ptr<Workload>> make(HostBackward host, const PlanOptions& options,
                                                JudgedHeads heads, bool is_given) {
    std::unique_ptr<BackwardWorkload> workload(new BackwardWorkload(std::move(host)));
    workload->device_ = options.device;
    Status status = heads == JudgedHeads::all ? workload->make_reference(options.threads, is_given)
                                              : workload->make_samples(options.threads);
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
    return heads_.empty() ? bench::judge(host_, reference_) : judge_samples();
  }

  std::string judged() const override {
    if (heads_.empty()) return "all heads";
    return fmt::format("{} of {} heads", heads_.size(), heads_kv(host_.forward.problem));
  }

 private:
  explicit BackwardWorkload(HostBackward host) : host_(std::move(host)) {}

  Status run_forward(HostProblem& host, const std::string& kernel, int threads) {
    PlanOptions options;
    options.kernel = kernel;
    options.threads = threads;
    const Result<Plan> plan = make_plan(host.problem, options);
    if (!plan.ok()) return plan.status();
    return plan->run(host.arguments());
  }

  Status make_reference(int threads, bool is_given) {
    FLASHCORE_RETURN_IF_ERROR(run_forward(host_.forward, "reference", threads));
    Result<GradientReferences> reference = compute_reference(host_, threads, is_given);
    if (!reference.ok()) return reference.status();
    reference_ = std::move(*reference);
    return {};
  }

  Status make_samples(int threads) {
    const Problem& problem = host_.forward.problem;
    FLASHCORE_RETURN_IF_ERROR(run_forward(host_.forward, "", threads));
    FLASHCORE_RETURN_IF_ERROR(add_head(0, 0, threads));
    if (problem.dropout_p > 0) return {};  // its draw depends on the head
    return add_head(problem.k.shape[0] - 1, problem.k.shape[1] - 1, threads);
  }

  Status add_head(int64_t batch, int64_t head, int threads) {
    Head one{batch, head, describe_head(), {}};
    HostProblem& forward = one.host.forward;
    for (auto& [name, tensor] : forward.tensors) copy_in(host_.forward.at(name), tensor, one);
    for (auto& [name, tensor] : one.host.tensors) {
      if (!is_gradient_output(name)) copy_in(host_.at(name), tensor, one);
    }
    FLASHCORE_RETURN_IF_ERROR(run_forward(forward, "reference", threads));
    for (const char* const name : {"o", "lse"}) {
      HostTensor& part = forward.at(name);
      const std::span<std::byte> to = part_of(host_.forward.at(name), part, one);
      std::memcpy(to.data(), part.data(), to.size());
    }
    Result<GradientReferences> reference = compute_reference(one.host, threads);
    if (!reference.ok()) return reference.status();
    one.reference = std::move(*reference);
    heads_.push_back(std::move(one));
    return {};
  }

  HostBackward describe_head() const {
    const int64_t count = host_.forward.problem.k.shape[1];
    Problem problem = host_.forward.problem;
    for_each_tensor(host_.forward.problem, [&](std::string_view name, const TensorDesc& desc) {
      set_tensor(problem, name, of_one_head(desc, count));
    });
    HostProblem forward = allocate(problem);
    forward.dropout_seed = host_.forward.dropout_seed;
    forward.dropout_offset = host_.forward.dropout_offset;
    return add_gradients(std::move(forward), plain_gradients(problem), 0);
  }

  static void copy_in(HostTensor& whole, HostTensor& part, const Head& head) {
    const std::span<std::byte> from = part_of(whole, part, head);
    std::memcpy(part.data(), from.data(), from.size());
  }

  Verdict judge_samples() {
    Verdict worst;
    worst.passed = true;
    for (Head& head : heads_) {
      for (auto& [name, tensor] : head.host.tensors) {
        if (is_gradient_output(name)) copy_in(host_.at(name), tensor, head);
      }
      const Verdict one = bench::judge(head.host, head.reference);
      if (worst.passed && !one.passed) {
        worst.failure =
            fmt::format("entry {}, head {} of the keys: {}", head.batch, head.head, one.failure);
        worst.passed = false;
      }
      worst.max_error = std::max(worst.max_error, one.max_error);
      worst.max_scaled_error = std::max(worst.max_scaled_error, one.max_scaled_error);
      worst.relative_error = std::max(worst.relative_error, one.relative_error);
      worst.naive_max_error = std::max(worst.naive_max_error, one.naive_max_error);
    }
    if (worst.passed) worst.failure = unwritten();
    worst.passed = worst.failure.empty();
    return worst;
  }

  // Of all heads: what was not written, and what was written elsewhere.
  std::string unwritten() const {
    for (const auto* const tensors : {&host_.forward.tensors, &host_.tensors}) {
      for (const auto& [name, tensor] : *tensors) {
        if (!tensor.canaries_intact()) {
          return fmt::format("{}: bytes outside of its elements were written", name);
        }
      }
    }
    for (const auto& [name, tensor] : host_.tensors) {
      const auto bytes = static_cast<size_t>(tensor.elements()) * size_of(tensor.desc().dtype);
      if (is_gradient_output(name) &&
          has_nan(tensor.desc().dtype, {static_cast<const std::byte*>(tensor.data()), bytes})) {
        return fmt::format("{} has elements that are NaN or were not written", name);
      }
    }
    return {};
  }

  Device device_;
  HostBackward host_;
  GradientReferences reference_;  // where all heads are judged
  std::vector<Head> heads_;       // else
  std::vector<std::unique_ptr<Execution>> executions_;
};

}  // namespace

Gradients plain_gradients(const Problem& problem) {
  Gradients gradients = gradients_of(problem, false);
  gradients.d_bias.reset();
  gradients.d_sinks.reset();
  gradients.d_alibi_slopes.reset();
  return gradients;
}

JudgedHeads judged_heads(const Problem& problem) {
  return backward_flop(problem) > kLargestWhole && heads_kv(problem) > 2
             ? JudgedHeads::first_and_last
             : JudgedHeads::all;
}

std::string gate_refusal(const Problem& problem, JudgedHeads heads) {
  const double operations = gate_operations(problem, heads);
  if (operations <= kMostOperations) return {};
  return fmt::format("gate: takes {:.2g} operations in fp64, wanted at most {:.2g}", operations,
                     kMostOperations);
}

Result<std::unique_ptr<Workload>> backward_workload(HostBackward host, const PlanOptions& options,
                                                    JudgedHeads heads, bool is_given) {
  return BackwardWorkload::make(std::move(host), options, heads, is_given);
}

}  // namespace flashcore::bench
