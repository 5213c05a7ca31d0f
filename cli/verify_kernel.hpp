// One kernel on one problem, judged against the reference, and what many of these add up to.
#pragma once

#include <cstdint>
#include <string>

#include "bench/gate/gates.hpp"
#include "cli/session.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// The worst of a row's seeds, or of a kernel's random problems.
struct Tally {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t refused = 0;
  std::string failure;  // the first
  std::string refusal;  // likewise
  double max_scaled_error = 0, relative_error = 0, lse_error = 0;

  void refuse(const std::string& sentence);
  void add(const bench::Verdict& verdict, const std::string& where);

  // "FAILED", "passed" or "refused", in colour where there is any.
  std::string mark(const Session& session) const;
};

// Runs a kernel on poisoned outputs; they are in `host` then.
Status run_kernel(bench::HostProblem& host, PlanOptions options, const std::string& kernel);

// Runs it twice: what it wrote passes the gates, and both runs give the same bits. An error is a
// failed verdict.
bench::Verdict judge_kernel(bench::HostProblem& host, const bench::Reference& reference,
                            const PlanOptions& options, const std::string& kernel);

}  // namespace flashcore::cli
