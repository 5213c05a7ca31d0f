// One kernel on one problem, judged against the reference.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "bench/gate/gates.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Runs a kernel on poisoned outputs; they are in `host` then, and in `launched` what a GPU launched.
Status run_kernel(HostProblem& host, const PlanOptions& options, const std::string& kernel,
                  std::set<std::string>* launched = nullptr);
Status run_kernel(HostBackward& host, const PlanOptions& options, const std::string& kernel);

// Runs it twice: what it wrote passes the gates, and both runs give the same bits. An error is a
// failed verdict. `seed` is the problem's: a simulated GPU orders its work by it and by --sim-seed,
// the second run otherwise than the first, and runs in a copy of this process.
Verdict judge_kernel(HostProblem& host, const Reference& reference, const PlanOptions& options,
                     const std::string& kernel, uint64_t seed);
Verdict judge_kernel(HostBackward& host, const GradientReferences& reference,
                     const PlanOptions& options, const std::string& kernel, uint64_t seed);

// " --device cuda:0", with the simulator's seed; empty for the CPU.
std::string repeat_device(Device device);

// Runs it between two marks on stdout, unjudged: what a sanitizer watches. An error is said in its
// output, as a complaint about the kernel.
Status run_marked(HostProblem& host, const PlanOptions& options, const std::string& kernel);
Status run_marked(HostBackward& host, const PlanOptions& options, const std::string& kernel);

}  // namespace flashcore::bench
