// Quantisation on the CPU, of validated runs.
#pragma once

#include "problem/quantize.hpp"

namespace flashcore::cpu {

void quantize(const QuantizeProblem& problem, const QuantizeArguments& args, int threads);

}  // namespace flashcore::cpu
