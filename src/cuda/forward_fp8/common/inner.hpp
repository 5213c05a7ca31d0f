// Kernels that make other tensors of a problem first, and leave the attention to a kernel of the table.
#pragma once

#include <string>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8 {

// What computes the attention.
struct Inner {
  const Kernel* kernel = nullptr;  // as long as the program; null: none
  std::string config;              // as PlanContext has it
  std::string refusal;             // where there is none, a sentence why
};
using ChooseInner = Inner (*)(const ForwardProblem& problem, const PlanContext& context);

}  // namespace flashcore::cuda::forward_fp8
