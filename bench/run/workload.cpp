#include "bench/run/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <variant>

#include "bench/cases/work.hpp"
#include "bench/device/device_memory.hpp"
#include "bench/device/execution.hpp"
#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "problem/dtype.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr double kLargestReference = 2e9;  // past it, rows are sampled
constexpr double kSampledWork = 1e9;
constexpr std::byte kPoison{0xFF};

int64_t row_count(const Problem& problem) {
  return problem.q.shape[0] * problem.q.shape[1] * problem.q.shape[2];
}

std::string sampled_text(const SampledReference& reference, const Problem& problem) {
  const int64_t all = row_count(problem);
  return reference.rows() >= all ? "all rows" : fmt::format("{} of {} rows", reference.rows(), all);
}

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
      return sampled->judge(host_);
    }
    return bench::judge(host_, std::get<Reference>(reference_));
  }

  std::string judged() const override {
    const auto* sampled = std::get_if<SampledReference>(&reference_);
    return sampled == nullptr ? "all rows" : sampled_text(*sampled, host_.problem);
  }

 private:
  Status make_reference(int threads) {
    const Problem& p = host_.problem;
    const bool simple = !p.cu_seqlens_q && !p.bias && !p.mask && !p.alibi_slopes && !p.sinks &&
                        !p.q_scale && !p.k_scale && !p.v_scale && !p.seqlens_q && !p.seqlens_kv &&
                        !p.causal_offsets && p.dropout_p == 0;
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

size_t bytes_of(const TensorDesc& desc) { return static_cast<size_t>(element_bytes(desc)); }

class DeviceTiles final : public TiledWorkload {
 public:
  static constexpr size_t kGuardBytes = 256;

  DeviceTiles(const Problem& problem, std::unique_ptr<DeviceMemory> memory)
      : problem_(problem), memory_(std::move(memory)) {}

  Status fill(const TiledInputs& inputs) {
    for (const auto& [name, desc] : {std::pair<const char*, const TensorDesc&>{"q", problem_.q},
                                     {"k", problem_.k},
                                     {"v", problem_.v}}) {
      const size_t bytes = bytes_of(desc);
      const Result<void*> data = memory_->allocate(bytes);
      if (!data.ok()) return data.status();
      data_[name] = static_cast<std::byte*>(*data);
      FLASHCORE_RETURN_IF_ERROR(memory_->copy_tiled(*data, bytes, inputs.piece(name)));
    }
    FLASHCORE_RETURN_IF_ERROR(fill_features());
    FLASHCORE_RETURN_IF_ERROR(add_output("o", problem_.o));
    return problem_.lse ? add_output("lse", *problem_.lse) : Status();
  }

  Status make_reference(const TiledInputs& inputs, int threads) {
    const auto read = [&](std::string_view name, int64_t begin, HostTensor& to) {
      const auto feature = features_.find(name);
      const bool own = feature != features_.end();
      read_tiled(own ? elements(feature->second) : inputs.piece(name), begin, to);
    };
    Result<SampledReference> reference =
        SampledReference::compute(problem_, read, kSampledWork, threads);
    if (!reference.ok()) return reference.status();
    reference_ = std::move(*reference);
    return {};
  }

  Result<TimedCall> prepare(const Plan& plan) override {
    FLASHCORE_RETURN_IF_ERROR(poison());
    const size_t bytes = plan.workspace_bytes();
    void* workspace = nullptr;
    if (bytes > 0) {
      const Result<void*> allocated = memory_->allocate(bytes);
      if (!allocated.ok()) return allocated.status();
      workspace = *allocated;
    }
    FLASHCORE_RETURN_IF_ERROR(memory_->synchronise());
    return TimedCall([plan, arguments = arguments(), workspace, bytes](Stream stream) {
      return plan.run(arguments, workspace, bytes, stream);
    });
  }

  Result<TimedCall> prepare(NativePeer& peer) override {
    FLASHCORE_RETURN_IF_ERROR(poison());
    FLASHCORE_RETURN_IF_ERROR(memory_->synchronise());
    return peer.prepare(problem_, arguments());
  }

  Result<Verdict> judge() override { return judge(problem_.lse.has_value()); }
  Result<Verdict> judge_output() override { return judge(false); }

  std::string judged() const override { return sampled_text(reference_, problem_); }
  const SampledReference& reference() const override { return reference_; }

 private:
  static std::span<const std::byte> elements(const HostTensor& tensor) {
    return {static_cast<const std::byte*>(tensor.data()), bytes_of(tensor.desc())};
  }

  // Bias and mask repeat a piece as q, k and v do.
  Status fill_features() {
    Random random(4);
    const auto add = [&](const char* name, const std::optional<TensorDesc>& desc, auto&& draw) {
      if (!desc) return Status();
      const int64_t whole = static_cast<int64_t>(bytes_of(*desc) / size_of(desc->dtype));
      HostTensor piece(
          TensorDesc::contiguous(desc->dtype, {std::min(whole, TiledInputs::kPieceElements)}));
      piece.fill(draw);
      const size_t bytes = bytes_of(*desc);
      const Result<void*> data = memory_->allocate(bytes);
      if (!data.ok()) return data.status();
      data_[name] = static_cast<std::byte*>(*data);
      FLASHCORE_RETURN_IF_ERROR(memory_->copy_tiled(*data, bytes, elements(piece)));
      features_.emplace(name, std::move(piece));
      return Status();
    };
    FLASHCORE_RETURN_IF_ERROR(add("bias", problem_.bias, [&] { return random.normal(); }));
    FLASHCORE_RETURN_IF_ERROR(
        add("mask", problem_.mask, [&] { return random.bits() % 4 != 0 ? 1.0 : 0.0; }));
    const auto heads = static_cast<double>(problem_.q.shape[1]);
    return add("alibi_slopes", problem_.alibi_slopes,
               [&, head = 0]() mutable { return std::exp2(-8.0 * ++head / heads); });
  }

  Status poison() {
    for (auto& [name, copy] : outputs_) {
      std::fill(copy.begin(), copy.end(), kPoison);
      FLASHCORE_RETURN_IF_ERROR(memory_->copy_in(data_[name] - kGuardBytes, copy));
    }
    return {};
  }

  Arguments arguments() {
    return bind(problem_,
                [this](std::string_view name) -> void* { return data_.find(name)->second; });
  }

  Result<Verdict> judge(bool with_lse) {
    FLASHCORE_RETURN_IF_ERROR(memory_->synchronise());
    for (auto& [name, copy] : outputs_) {
      FLASHCORE_RETURN_IF_ERROR(memory_->copy_out(copy, data_[name] - kGuardBytes));
    }
    const auto read = [this](std::string_view name, int64_t begin, HostTensor& to) {
      const size_t size = size_of(to.desc().dtype);
      const std::span<const std::byte> from = elements_of(name);
      std::memcpy(to.data(), from.data() + static_cast<size_t>(begin) * size,
                  static_cast<size_t>(to.elements()) * size);
    };
    Verdict verdict = reference_.judge(read, with_lse);
    if (verdict.passed && has_nan(problem_.o.dtype, elements_of("o"))) {
      verdict.failure = "o has elements that are NaN or were not written";
    }
    for (const auto& [name, copy] : outputs_) {
      const auto intact = [](std::span<const std::byte> guard) {
        return std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kPoison; });
      };
      const std::span<const std::byte> all = copy;
      if (verdict.passed && verdict.failure.empty() &&
          !(intact(all.first(kGuardBytes)) && intact(all.last(kGuardBytes)))) {
        verdict.failure = name + ": bytes outside of its elements were written";
      }
    }
    verdict.passed = verdict.failure.empty();
    return verdict;
  }

  Status add_output(const std::string& name, const TensorDesc& desc) {
    const size_t bytes = bytes_of(desc) + 2 * kGuardBytes;
    const Result<void*> data = memory_->allocate(bytes);
    if (!data.ok()) return data.status();
    data_[name] = static_cast<std::byte*>(*data) + kGuardBytes;
    outputs_[name].resize(bytes);
    return {};
  }

  std::span<const std::byte> elements_of(std::string_view name) const {
    const std::span<const std::byte> all = outputs_.find(name)->second;
    return all.subspan(kGuardBytes, all.size() - 2 * kGuardBytes);
  }

  Problem problem_;
  std::unique_ptr<DeviceMemory> memory_;
  std::map<std::string, std::byte*, std::less<>> data_;      // where elements begin, on the device
  std::map<std::string, HostTensor, std::less<>> features_;  // pieces of bias and mask, the slopes
  std::map<std::string, std::vector<std::byte>, std::less<>> outputs_;  // on the host, with guards
  SampledReference reference_;
};

}  // namespace

Result<std::unique_ptr<Workload>> given_workload(Result<HostProblem> host,
                                                 const PlanOptions& options) {
  if (!host.ok()) return host.status();
  return GivenWorkload::make(std::move(*host), options);
}

Result<std::unique_ptr<TiledWorkload>> TiledWorkload::make(const Problem& problem,
                                                           const TiledInputs& inputs,
                                                           const PlanOptions& options) {
  FLASHCORE_RETURN_IF_ERROR(check_memory(problem));
  Result<std::unique_ptr<DeviceMemory>> memory = device_memory(options.device);
  if (!memory.ok()) return memory.status();
  auto workload = std::make_unique<DeviceTiles>(problem, std::move(*memory));
  FLASHCORE_RETURN_IF_ERROR(workload->fill(inputs));
  FLASHCORE_RETURN_IF_ERROR(workload->make_reference(inputs, options.threads));
  return std::unique_ptr<TiledWorkload>(std::move(workload));
}

}  // namespace flashcore::bench
