// V's transposition on the CPU, of validated runs.
#pragma once

#include "problem/transpose_v.hpp"

namespace flashcore::cpu {

void transpose_v(const TransposeProblem& problem, const void* v, void* v_out, int threads);

}  // namespace flashcore::cpu
