#include "bench/tensors/backward_set.hpp"

#include <array>
#include <optional>
#include <span>
#include <utility>

#include "bench/tensors/random.hpp"

namespace flashcore::bench {
namespace {

struct RequiredGradient {
  std::string_view name;
  TensorDesc Gradients::*desc;
};

struct OptionalGradient {
  std::string_view name;
  std::optional<TensorDesc> Gradients::*desc;
};

constexpr RequiredGradient kInput = {"d_o", &Gradients::d_o};
constexpr OptionalGradient kOptionalInput = {"d_lse", &Gradients::d_lse};
constexpr std::array<RequiredGradient, 3> kOutputs = {
    {{"dq", &Gradients::dq}, {"dk", &Gradients::dk}, {"dv", &Gradients::dv}}};
constexpr std::array<OptionalGradient, 3> kOptionalOutputs = {
    {{"d_bias", &Gradients::d_bias},
     {"d_sinks", &Gradients::d_sinks},
     {"d_alibi_slopes", &Gradients::d_alibi_slopes}}};

TensorDesc contiguous_like(const TensorDesc& like, DType dtype) {
  return contiguous(dtype, std::span(like.shape).first(static_cast<size_t>(like.rank)));
}

}  // namespace

void for_each_gradient(const Gradients& gradients,
                       const std::function<void(std::string_view, const TensorDesc&)>& visit) {
  visit(kInput.name, gradients.*kInput.desc);
  if (gradients.*kOptionalInput.desc) visit(kOptionalInput.name, *(gradients.*kOptionalInput.desc));
  for (const RequiredGradient& one : kOutputs) visit(one.name, gradients.*one.desc);
  for (const OptionalGradient& one : kOptionalOutputs) {
    if (gradients.*one.desc) visit(one.name, *(gradients.*one.desc));
  }
}

bool is_gradient_output(std::string_view name) {
  return name != kInput.name && name != kOptionalInput.name;
}

Problem with_lse(Problem problem) {
  if (problem.lse) return problem;
  const auto rank = static_cast<size_t>(problem.o.rank);
  if (rank > 0) problem.lse = contiguous(DType::f32, std::span(problem.o.shape).first(rank - 1));
  return problem;
}

Gradients gradients_of(const Problem& problem, bool d_lse) {
  const auto like = [](const TensorDesc& tensor) { return contiguous_like(tensor, tensor.dtype); };
  Gradients gradients{.d_o = like(problem.o),
                      .dq = like(problem.q),
                      .dk = like(problem.k),
                      .dv = like(problem.v),
                      .d_lse = {},
                      .d_bias = {},
                      .d_sinks = {},
                      .d_alibi_slopes = {}};
  if (d_lse && problem.lse) gradients.d_lse = like(*problem.lse);
  if (problem.bias) gradients.d_bias = like(*problem.bias);
  if (problem.sinks) gradients.d_sinks = like(*problem.sinks);
  if (problem.alibi_slopes) gradients.d_alibi_slopes = like(*problem.alibi_slopes);
  return gradients;
}

Gradients exact(const Gradients& gradients) {
  Gradients out = gradients;
  for (const RequiredGradient& one : kOutputs) {
    out.*one.desc = contiguous_like(gradients.*one.desc, DType::f64);
  }
  for (const OptionalGradient& one : kOptionalOutputs) {
    if (gradients.*one.desc) out.*one.desc = contiguous_like(*(gradients.*one.desc), DType::f64);
  }
  return out;
}

BackwardArguments bind(const Gradients& gradients, const Arguments& forward,
                       const std::function<void*(std::string_view)>& pointer_of) {
  BackwardArguments args;
  args.forward = forward;
  args.d_o = pointer_of("d_o");
  args.dq = pointer_of("dq");
  args.dk = pointer_of("dk");
  args.dv = pointer_of("dv");
  if (gradients.d_lse) args.d_lse = pointer_of("d_lse");
  if (gradients.d_bias) args.d_bias = pointer_of("d_bias");
  if (gradients.d_sinks) args.d_sinks = pointer_of("d_sinks");
  if (gradients.d_alibi_slopes) args.d_alibi_slopes = pointer_of("d_alibi_slopes");
  return args;
}

BackwardArguments HostBackward::arguments() {
  return bind(gradients, forward.arguments(),
              [this](std::string_view name) { return at(name).data(); });
}

HostBackward add_gradients(HostProblem forward, const Gradients& gradients, uint64_t seed) {
  HostBackward host{.forward = std::move(forward), .gradients = gradients, .tensors = {}};
  constexpr uint64_t kOtherNumbers = 0x6261636B77617264;  // different from the forward problem's
  Random random(seed ^ kOtherNumbers);
  for_each_gradient(gradients, [&](std::string_view name, const TensorDesc& desc) {
    HostTensor& tensor = host.tensors.emplace(name, HostTensor(desc)).first->second;
    if (!is_gradient_output(name)) tensor.fill([&] { return random.normal(); });
  });
  return host;
}

Result<HostBackward> make_host_backward(HostProblem forward, const Gradients& gradients,
                                        uint64_t seed, int threads) {
  PlanOptions options;
  options.kernel = "reference";
  options.threads = threads;
  const Result<Plan> plan = make_plan(forward.problem, options);
  if (!plan.ok()) return plan.status();
  if (Status status = plan->run(forward.arguments()); !status.ok()) return status;
  return add_gradients(std::move(forward), gradients, seed);
}

void poison_outputs(HostBackward& host) {
  for (auto& [name, tensor] : host.tensors) {
    if (is_gradient_output(name)) tensor.poison();
  }
}

}  // namespace flashcore::bench
