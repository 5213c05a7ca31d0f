// Merge and append on the CPU, of validated runs.
#pragma once

#include "problem/serving.hpp"

namespace flashcore::cpu {

void merge(const MergeProblem& problem, const MergeArguments& args, int threads);
void append(const AppendProblem& problem, const AppendArguments& args, int threads);

}  // namespace flashcore::cpu
