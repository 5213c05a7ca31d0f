// forward_fp8_converted as a row of the table of kernels.
#pragma once

#include <string>

#include "kernel/kernel.hpp"

namespace flashcore::cuda::forward_fp8::converted {

// What computes the attention between the conversions.
struct Inner {
  const Kernel* kernel = nullptr;  // as long as the program; null: none
  std::string config;              // as PlanContext has it
  std::string refusal;             // where there is none, a sentence why
};
using ChooseInner = Inner (*)(const ForwardProblem& problem, const PlanContext& context);

Kernel kernel(ChooseInner choose);

}  // namespace flashcore::cuda::forward_fp8::converted
