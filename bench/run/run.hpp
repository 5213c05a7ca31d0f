// The run behind `flashcore bench`, in this process: ceilings, then case by case gates, kernels and
// peers in turns, evidence. watch.hpp runs it in a process that can be ended.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/io/problem_inputs.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Subject;

// Of a run that tunes: each case's points are its candidates, as the table of kernels has them, the
// choice without a tuning table first.
struct Tuning {
  std::function<bool(const Subject&)> is_known;  // then it is not measured
  // What becomes of a case that was: may add to its evidence. An error ends the run.
  std::function<Status(const Subject&, nlohmann::ordered_json& one)> finished;
  int64_t grid_limit = 0;  // SMs that plans see, where they are fewer than the GPU's; 0: all
};

struct RunOptions {
  std::string also;  // kernels that are never chosen by themselves
  std::string only;  // if not empty, these kernels and no others
  bool all_kernels = false;
  bool launches = false;       // rows say what a call launches
  std::string peers = "none";  // none, auto, or the helper's path
  std::string backends = "auto";
  std::string protocols = "auto";
  double seconds = 0;  // no case begins after these, and tuning ends; 0: no limit
  std::string out;
  bool resume = false;
  bool backward = false;  // of gradients: all subjects have them
  bool verbose = false;
  double deadline = 30;        // seconds of a step before it is given up; 0: no limit
  std::string worker_program;  // in place of this one, for tests
  std::string worker;          // the file of a RunOrder, in the process that works for another
  std::optional<Tuning> tuning = std::nullopt;
};

// One case of a suite or a file, or the problem that was given.
struct Subject {
  std::string suite;
  Case one;                                           // of a suite or a file
  std::optional<ProblemInputs> given;                 // else
  std::vector<std::string> kernels = {};              // if not empty, these and no others
  std::optional<Gradients> gradients = std::nullopt;  // of a backward pass

  std::string name() const;
  Problem problem() const;
};

// What a process that works for another is told beyond the options.
struct RunOrder {
  std::string out;       // in place of --out
  bool goes_on = false;  // with what an earlier process of this run left in `out`
  double elapsed = 0;    // seconds of the run so far
  std::string kernel;    // forced by the environment
  struct Lost {
    std::string suite, name, implementation, why;
  };
  std::vector<Lost> lost;  // points that ended such a process: not asked again
};

// What is begun, said before it is: a hang has a name, and whoever watches knows how long to wait.
struct Step {
  std::string what;
  std::string suite, name;     // of the case
  std::string implementation;  // whose calls run; empty for everything else
};

// Who hears of a run's progress.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void begins(const Step& step) = 0;
  virtual void finished(const nlohmann::ordered_json* one) = 0;  // a case; null: nothing was done
};

// The whole run. `evidence` is what came of it, also when it ended early; it is in `order.out` as
// well unless that is empty.
Status run_cases(const RunOptions& options, const std::vector<Subject>& subjects,
                 const PlanOptions& plan, const RunOrder& order, RunListener& listener,
                 nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench
