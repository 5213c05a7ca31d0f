// The data of a backward problem on a device, and the judge of the gradients that kernels write.
#pragma once

#include <memory>
#include <string>

#include "bench/run/workload.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

// Which heads of keys, with their queries, are judged: all of them, or the first and the last.
enum class JudgedHeads { all, first_and_last };

// dQ, dK and dV, of a suite's case.
Gradients plain_gradients(const Problem& problem);

// Of such a case: the first and the last head, where all would take long.
JudgedHeads judged_heads(const Problem& problem);

// Why the gate of a problem is not computed; empty where it is.
std::string gate_refusal(const Problem& problem, JudgedHeads heads);

// `host` has its inputs, and the gradients that flow in. O and LSE become those of the reference,
// rounded, of every head that is judged; those of others are the CPU's.
// `is_given`: of a problem that somebody gave, whose gate allows what a random problem's does.
Result<std::unique_ptr<Workload>> backward_workload(HostBackward host, const PlanOptions& options,
                                                    JudgedHeads heads, bool is_given);

}  // namespace flashcore::bench
