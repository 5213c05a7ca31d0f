#include "bench/cases/random_backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace flashcore::bench {
namespace {

constexpr uint64_t kGradientNumbers = 0x6772616469656E74;  // other ones than the forward problem's

RandomSpace forward_space(RandomSpace space) {
  space.fp8 = false;
  space.dropout_state = false;  // drawn here
  space.steep_slopes = false;   // P uses the LSE, which rounds away the rest of a large score
  return space;
}

Problem draw_problem(const Problem& forward, Random& random) {
  Problem problem = with_lse(forward);
  if (problem.dropout_p > 0 && random.chance(0.5)) {
    problem.dropout_state = TensorDesc::contiguous(DType::i64, {2});
  }
  return problem;
}

// Half of the time uses the strides of `like`; otherwise the tensor stays contiguous.
void maybe_strided_as(Random& random, const TensorDesc& like, TensorDesc& tensor) {
  if (random.chance(0.5)) tensor.stride = like.stride;
}

Gradients draw_gradients(Random& random, const Problem& problem, const RandomSpace& space) {
  // The gradient of a bias that all keys share is the LSE's: without d_lse it is 0, and a kernel's
  // result is rounding.
  const bool is_shared = problem.bias && problem.bias->shape[3] == 1;
  Gradients out = gradients_of(problem, random.chance(0.4) || is_shared);
  maybe_strided_as(random, problem.o, out.d_o);
  maybe_strided_as(random, problem.q, out.dq);
  maybe_strided_as(random, problem.k, out.dk);
  maybe_strided_as(random, problem.v, out.dv);
  if (random.chance(0.25)) out.dq.dtype = DType::f32;
  if (random.chance(0.25)) out.dk.dtype = DType::f32;
  if (random.chance(0.25)) out.dv.dtype = DType::f32;
  if (space.same_types) out.dq.dtype = out.dk.dtype = out.dv.dtype = problem.q.dtype;
  if (random.chance(0.3)) out.d_bias.reset();
  if (out.d_bias && random.chance(0.5)) out.d_bias->dtype = DType::f32;
  if (random.chance(0.2)) out.d_sinks.reset();
  if (random.chance(0.2)) out.d_alibi_slopes.reset();
  return out;
}

// Dirties rows past the queries in use of a dense batch entry: no gradient flows in there.
void dirty_padding(HostBackward& host) {
  const HostProblem& forward = host.forward;
  if (!forward.has("seqlens_q") || forward.problem.cu_seqlens_q) return;
  HostTensor& d_o = host.at("d_o");
  const TensorDesc& desc = d_o.desc();
  for (int64_t element = 0; element < d_o.elements(); ++element) {
    const int64_t row = element / desc.shape[3] % desc.shape[2];
    const int64_t entry = element / (desc.shape[3] * desc.shape[2] * desc.shape[1]);
    if (static_cast<double>(row) >= forward.at("seqlens_q").get(entry)) {
      d_o.set(element, std::numeric_limits<double>::quiet_NaN());
    }
  }
}

}  // namespace

RandomBackward::RandomBackward(uint64_t seed, const RandomSpace& space)
    : seed_(seed), forward_(seed, forward_space(space)) {
  Random random(seed ^ kGradientNumbers);
  problem_ = draw_problem(forward_.problem(), random);
  gradients_ = draw_gradients(random, problem_, space);
}

Result<HostBackward> RandomBackward::fill(int threads) const {
  HostProblem filled = forward_.fill();
  HostProblem forward = allocate(problem_);  // with the tensors that the forward draw lacks
  forward.dropout_seed = filled.dropout_seed;
  forward.dropout_offset = filled.dropout_offset;
  for (auto& [name, tensor] : filled.tensors) forward.at(name) = std::move(tensor);
  if (forward.has("dropout_state")) {
    fill_dropout_state(forward);
    std::swap(forward.dropout_seed, forward.dropout_offset);  // nothing reads them
  }
  Result<HostBackward> host = make_host_backward(std::move(forward), gradients_, seed_, threads);
  if (host.ok()) dirty_padding(*host);
  return host;
}

std::string describe(const Problem& problem, const Gradients& gradients) {
  std::string text = describe(problem) + ';';
  for_each_gradient(gradients, [&](std::string_view name, const TensorDesc& desc) {
    const auto rank = static_cast<size_t>(desc.rank);
    text += fmt::format(" {} {}/({})", name, to_string(desc.dtype),
                        fmt::join(std::span(desc.stride.data(), rank), ","));
  });
  return text;
}

}  // namespace flashcore::bench
