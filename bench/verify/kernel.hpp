// One kernel on one problem, judged against the reference.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "bench/gate/gates.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Runs a kernel on poisoned outputs, which are then in `host`; `launched` gets a GPU's launches.
Status run_kernel(HostProblem& host, const PlanOptions& options, const std::string& kernel,
                  std::set<std::string>* launched = nullptr);

// Judges kernels on one problem, whose data and reference are there. It runs a kernel twice: the
// output must pass the gates, and both runs must give the same bits. An error becomes a failed
// verdict. `seed` is the problem's: it and --sim-seed determine the order of work on a simulated
// GPU, which differs in the second run, and which runs in a copy of this process.
using KernelJudge = std::function<Verdict(const std::string& kernel)>;
Result<KernelJudge> kernel_judge(HostProblem host,
                                 const std::function<Result<Reference>(HostProblem&)>& reference,
                                 const PlanOptions& options, uint64_t seed);
Result<KernelJudge> kernel_judge(Result<HostBackward> host, bool is_random,
                                 const PlanOptions& options, uint64_t seed);

// " --device cuda:0", with the simulator's seed; empty for the CPU.
std::string repeat_device(Device device);

// Runs it between two marks on stdout, for a sanitizer, without judging it. An error is printed
// like a complaint about the kernel.
Status run_marked(HostProblem& host, const PlanOptions& options, const std::string& kernel);
Status run_marked(HostBackward& host, const PlanOptions& options, const std::string& kernel);

}  // namespace flashcore::bench
