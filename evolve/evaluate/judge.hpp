// Applies the gates of docs/accuracy.md to a candidate's calls.
#pragma once

#include <string>

#include "bench/gate/gates.hpp"
#include "evolve/evaluate/call_memory.hpp"
#include "evolve/task/task.hpp"

namespace flashcore::evolve {

// Copies a problem's inputs into a call, and the call's outputs back.
void put_inputs(const bench::HostProblem& host, CallMemory& memory, uint64_t call);
void take_outputs(CallMemory& memory, uint64_t call, bench::HostProblem& host);

// Judges a completed call: all rows if that takes at most `flop` operations, otherwise at least one
// block of rows at random positions. The fp64 reference is computed here.
Result<bench::Verdict> judge_rows(const Task& task, const CallShape& shape, CallMemory& memory,
                                  uint64_t call, double flop, bench::Random& secret);

}  // namespace flashcore::evolve
