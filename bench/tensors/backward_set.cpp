#include "bench/tensors/backward_set.hpp"

#include <span>
#include <utility>

#include "bench/tensors/random.hpp"
#include "problem/operands.hpp"

namespace flashcore::bench {
void for_each_gradient(const Gradients& gradients,
                       const std::function<void(std::string_view, const TensorDesc&)>& visit) {
  for (const auto& line : kOperands<Gradients>) {
    if (const TensorDesc* const tensor = line.find(gradients)) visit(line.name, *tensor);
  }
}

bool is_gradient_output(std::string_view name) { return name != "d_o" && name != "d_lse"; }

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
  for (const auto& line : kOperands<Gradients>) {
    const TensorDesc* const tensor = line.is_output ? line.find(gradients) : nullptr;
    if (tensor != nullptr) line.set(out, contiguous_like(*tensor, DType::f64));
  }
  return out;
}

BackwardArguments bind(const Gradients& gradients, const Arguments& forward,
                       const std::function<void*(std::string_view)>& pointer_of) {
  BackwardArguments args;
  args.forward = forward;
  for (const auto& line : kOperands<Gradients>) {
    if (line.find(gradients) != nullptr) line.bind(args, pointer_of(line.name));
  }
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
  if (Status status = run_on_cpu("reference", forward, threads); !status.ok()) return status;
  return add_gradients(std::move(forward), gradients, seed);
}

void poison_outputs(HostBackward& host) {
  for (auto& [name, tensor] : host.tensors) {
    if (is_gradient_output(name)) tensor.poison();
  }
}

}  // namespace flashcore::bench
