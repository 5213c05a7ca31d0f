// The results of kernels on many problems, and loops over problems and kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/device/plan_choice.hpp"
#include "bench/gate/gates.hpp"
#include "bench/text/progress.hpp"
#include "bench/verify/kernel.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The sum of many verdicts on a kernel: the worst errors, the first failure.
struct Tally {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t refused = 0;
  int64_t different = 0;  // failures where a second run gave other bits
  std::string failure;    // the first one
  std::string refusal;    // the first one
  double max_scaled_error = 0, relative_error = 0, lse_error = 0;
  std::set<std::string> launched;  // functions that all of its runs launched

  void refuse(const std::string& sentence);
  void add(const Verdict& verdict, const std::string& where);
};

// One problem, for all kernels.
struct Trial {
  uint64_t seed = 0;  // a random problem's seed
  std::string name;   // "seed 3", "mission f16 causal seed 0"
  Pass pass;
  std::function<Result<KernelJudge>()> prepare = nullptr;  // makes data and reference
  std::function<std::string(const std::string& kernel)> repeat = nullptr;  // the command
};

struct Failure {
  uint64_t seed = 0;
  std::string name, kernel, what, problem, repeat;
};

// The results on one table's problems. Several threads may add to it at once.
class Findings {
 public:
  void refuse(const std::string& kernel, const std::string& sentence);
  void add(const std::string& kernel, const Verdict& verdict, const Trial& trial);

  const std::map<std::string, Tally>& tallies() const { return tallies_; }  // kernel to tally
  std::vector<Failure> failures() const;  // ordered by seeds and names

 private:
  std::mutex mutex_;
  std::map<std::string, Tally> tallies_;
  std::vector<Failure> failures_;
};

// [{"kernel", "passed", "failed", "refused", "max_scaled_error", "relative_error", "lse_error"}]
nlohmann::ordered_json tallies_json(const Findings& found);

// [{"name", "kernel", "failure", "problem", "repeat"}]
nlohmann::ordered_json failures_json(const Findings& found);

// The kernels to judge, and their device.
struct Tested {
  PlanOptions plan;
  std::vector<std::string> kernels = {};  // empty: plan.kernel, or all but the judges
};

// Judges every kernel on the problem. Its data and reference are computed once, when the first
// kernel computes it; `step` is called as each step begins. An error is an internal one.
Status judge_trial(const Trial& trial, const Tested& tested, Findings& found,
                   const std::function<void(const std::string&)>& step = nullptr);

// Calls judge(n) for n in [0, count) on up to `threads` threads (0: all) and shows the progress;
// name(n) names the current step. The first error ends the loop.
Status for_each_trial(const std::string& task, int64_t count, int threads,
                      const std::function<std::string(int64_t)>& name,
                      const std::function<Status(int64_t)>& judge);

}  // namespace flashcore::bench
