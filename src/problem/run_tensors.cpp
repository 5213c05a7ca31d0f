#include "problem/run_tensors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "problem/operands.hpp"
#include "problem/problem.hpp"

namespace flashcore {
namespace {

// The problem without a state that is not read.
Problem in_use(Problem problem) {
  if (problem.dropout_p == 0) problem.dropout_state.reset();
  return problem;
}

// The problem without outputs that only the forward pass writes.
Problem in_backward_use(Problem problem) {
  for (const LargestValue& one : kLargestOutputs) (problem.*one.tensor).reset();
  return in_use(problem);
}

template <class Tensors>
void put_outputs_first(Tensors& tensors) {
  Tensors ordered;
  for (const bool outputs : {true, false}) {
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(ordered),
                 [&](const auto& one) { return one.at_zero.is_output == outputs; });
  }
  tensors = std::move(ordered);
}

}  // namespace

template <class What, class AnyArguments>
RunTensors::Tensors<AnyArguments> RunTensors::tensors_of(const What& what) {
  Tensors<AnyArguments> all;
  for (const auto& line : kOperands<What>) {
    const TensorDesc* const tensor = line.find(what);
    if (tensor != nullptr) all.push_back({line.data, memory_of(line, *tensor, nullptr)});
  }
  return all;
}

RunTensors::RunTensors(const Problem& problem)
    : forward_(tensors_of<Problem, Arguments>(in_use(problem))) {
  put_outputs_first(forward_);
}

RunTensors::RunTensors(const Problem& problem, const Gradients& gradients)
    : forward_(tensors_of<Problem, Arguments>(in_backward_use(problem))),
      gradients_(tensors_of<Gradients, BackwardArguments>(gradients)) {
  put_outputs_first(forward_);
  for (auto& tensor : forward_) tensor.at_zero.is_output = false;
  // A sentence about two gradients begins with the later one.
  std::reverse(gradients_.begin(), gradients_.end());
  put_outputs_first(gradients_);
}

template <class AnyArguments>
NamedMemory* RunTensors::place(const Tensors<AnyArguments>& tensors, const AnyArguments& args,
                               NamedMemory* to) {
  for (const auto& [data, at_zero] : tensors) {
    *to = at_zero;
    to->data = data(args);
    const auto address = reinterpret_cast<uintptr_t>(to->data);
    to->bytes.first += address;
    to->bytes.last += address;
    ++to;
  }
  return to;
}

Status RunTensors::check(const Arguments& args) const {
  std::array<NamedMemory, operands::kProblem.size()> all;
  NamedMemory* const end = place(forward_, args, all.data());
  return check_memory(std::span(all.data(), end));
}

Status RunTensors::check(const BackwardArguments& args) const {
  std::array<NamedMemory, operands::kGradients.size() + operands::kProblem.size()> all;
  NamedMemory* const end = place(forward_, args.forward, place(gradients_, args, all.data()));
  return check_memory(std::span(all.data(), end));
}

}  // namespace flashcore
