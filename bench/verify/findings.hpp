// What kernels did on many problems, and how several problems and kernels are gone through.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/gate/gates.hpp"
#include "bench/gate/gradient_gates.hpp"
#include "bench/text/progress.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// What many verdicts on a kernel add up to: the worst errors, the first failure.
struct Tally {
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t refused = 0;
  int64_t different = 0;  // of the failed: a second run gave other bits
  std::string failure;    // the first
  std::string refusal;    // likewise
  double max_scaled_error = 0, relative_error = 0, lse_error = 0;
  std::set<std::string> launched;  // by all of them

  void refuse(const std::string& sentence);
  void add(const Verdict& verdict, const std::string& where);
};

// One problem for all kernels.
struct Trial {
  uint64_t seed = 0;  // of a random problem
  std::string name;   // "seed 3", "mission f16 causal seed 0"
  Problem problem;
  std::function<HostProblem()> fill;  // outputs poisoned
  std::function<Result<Reference>(HostProblem&)> reference;
  std::function<std::string(const std::string& kernel)> repeat = nullptr;  // the command
};

// The same of a backward problem.
struct BackwardTrial {
  uint64_t seed = 0;
  std::string name;
  Problem problem;
  Gradients gradients;
  std::function<Result<HostBackward>()> fill;
  bool is_random = false;
  std::function<std::string(const std::string& kernel)> repeat = nullptr;
};

// How a failure of a trial is told.
struct TrialText {
  uint64_t seed = 0;
  std::string name;
  std::function<std::string()> problem;
  std::function<std::string(const std::string& kernel)> repeat = nullptr;
};
TrialText text_of(const Trial& trial);

struct Failure {
  uint64_t seed = 0;
  std::string name, kernel, what, problem, repeat;
};

// Of the problems of one table. Several threads may add to it at a time.
class Findings {
 public:
  void refuse(const std::string& kernel, const std::string& sentence);
  void add(const std::string& kernel, const Verdict& verdict, const TrialText& trial);
  void add(const std::string& kernel, const Verdict& verdict, const Trial& trial) {
    add(kernel, verdict, text_of(trial));
  }

  const std::map<std::string, Tally>& tallies() const { return tallies_; }  // by kernel
  std::vector<Failure> failures() const;  // in order of seeds and names

 private:
  std::mutex mutex_;
  std::map<std::string, Tally> tallies_;
  std::vector<Failure> failures_;
};

// [{"kernel", "passed", "failed", "refused", "max_scaled_error", "relative_error", "lse_error"}]
nlohmann::ordered_json tallies_json(const Findings& found);

// [{"name", "kernel", "failure", "problem", "repeat"}]
nlohmann::ordered_json failures_json(const Findings& found);

// The kernels that are judged, and where they run.
struct Tested {
  PlanOptions plan;
  std::vector<std::string> kernels = {};  // empty: plan.kernel, or all but the judges
};

// Judges every kernel on the problem. Its data and reference are made once, when the first kernel
// computes it; `step` is told what begins. A status is an error of the program's own.
Status judge_trial(const Trial& trial, const Tested& tested, Findings& found,
                   const std::function<void(const std::string&)>& step = nullptr);
Status judge_trial(const BackwardTrial& trial, const Tested& tested, Findings& found,
                   const std::function<void(const std::string&)>& step = nullptr);

// Calls judge(n) for n in [0, count) on up to `threads` threads (0: all) and shows the progress,
// where name(n) says what is being done. The first error ends it.
Status for_each_trial(const std::string& task, int64_t count, int threads,
                      const std::function<std::string(int64_t)>& name,
                      const std::function<Status(int64_t)>& judge);

}  // namespace flashcore::bench
