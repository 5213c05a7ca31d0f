// The run behind `flashcore bench`, in this process: ceilings, then for each case gates, kernels
// and peers in turns, and evidence. watch.hpp runs it in a process that can be killed.
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

// The parameters of a tuning run: each case's points are its candidates, as in the table of
// kernels, beginning with the choice without a tuning table.
struct Tuning {
  std::function<bool(const Subject&)> is_known;  // then it is skipped
  // Called for each measured case; may add to its evidence. An error ends the run.
  std::function<Status(const Subject&, nlohmann::ordered_json& one)> finished;
  int64_t grid_limit = 0;  // SMs that plans see, if fewer than the GPU's; 0: all
};

struct RunOptions {
  std::string also;  // additional kernels that are never chosen automatically
  std::string only;  // if not empty, only these kernels
  bool all_kernels = false;
  bool launches = false;       // rows include a call's launches
  std::string peers = "none";  // none, auto, or the helper's path
  std::string backends = "auto";
  std::string protocols = "auto";
  double seconds = 0;  // time limit for starting cases, and for tuning; 0: none
  std::string out;
  bool resume = false;
  bool backward = false;  // backward pass: all subjects have gradients
  bool verbose = false;
  double deadline = 30;        // seconds before a step is given up; 0: no limit
  std::string worker_program;  // replaces this program, for tests
  std::string worker;          // the file of a RunOrder, in a worker process
  std::optional<Tuning> tuning = std::nullopt;
};

// One case of a suite or a file, or a given problem.
struct Subject {
  std::string suite;
  Case one;                                           // a suite's or a file's case
  std::optional<ProblemInputs> given;                 // otherwise
  std::vector<std::string> kernels = {};              // if not empty, only these
  std::optional<Gradients> gradients = std::nullopt;  // for a backward pass

  std::string name() const;
  Problem problem() const;
};

// The additional options of a worker process.
struct RunOrder {
  std::string out;       // replaces --out
  bool goes_on = false;  // resumes what an earlier worker left in `out`
  double elapsed = 0;    // seconds of the run so far
  std::string kernel;    // forced by the environment
  struct Lost {
    std::string suite, name, implementation, why;
  };
  std::vector<Lost> lost;  // points that killed a worker: skipped from now on
};

// A step, announced before it begins: a hang can be attributed, and the watcher knows how long to wait.
struct Step {
  std::string what;
  std::string suite, name;     // the case's
  std::string implementation;  // whose calls run; empty for other steps
};

// Receives a run's progress.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual void begins(const Step& step) = 0;
  virtual void finished(const nlohmann::ordered_json* one) = 0;  // a case; null: nothing was done
};

// Runs everything. `evidence` gets the results, even if the run ended early; they are also in
// `order.out` unless that is empty.
Status run_cases(const RunOptions& options, const std::vector<Subject>& subjects,
                 const PlanOptions& plan, const RunOrder& order, RunListener& listener,
                 nlohmann::ordered_json& evidence);

}  // namespace flashcore::bench
