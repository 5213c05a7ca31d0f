// The gates of docs/accuracy.md over the calls of a candidate.
#pragma once

#include <string>

#include "bench/gate/gates.hpp"
#include "evolve/evaluate/call_memory.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

// Inputs of a call, from a problem; and its outputs back into it.
void put_inputs(const bench::HostProblem& host, CallMemory& memory, uint64_t call);
void take_outputs(CallMemory& memory, uint64_t call, bench::HostProblem& host);

// Judges a call whose outputs are there: all rows where that takes `flop` operations or fewer,
// otherwise blocks of rows at random places, one at least. The fp64 reference is computed here and now.
Result<bench::Verdict> judge_rows(const Task& task, const CallShape& shape, CallMemory& memory,
                                  uint64_t call, double flop, bench::Random& secret);

}  // namespace flashcore::evolve
