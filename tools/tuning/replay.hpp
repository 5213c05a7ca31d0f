// Recordings of all kernels' times for a problem, and the regret of choices between those kernels:
// the time of the chosen kernel over the fastest one's, minus 1.
//
// A GPU's folder in src/tuning/gpus names its recordings in constants.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"
#include "kernel/work_unit.hpp"
#include "problem/problem.hpp"
#include "tuning/gpu.hpp"

namespace flashcore::replay {

struct Row {
  ForwardProblem problem;
  std::map<std::string, double> us;  // kernel to time
  size_t recording;
};

struct Recordings {
  DeviceInfo device;
  double sm_clock_mhz = 0;
  std::vector<std::string> commits;  // per recording
  std::vector<Row> rows;
};

// `constants`: a GPU's file, whose "measurements" are below `root`.
Result<nlohmann::ordered_json> read_json(const std::filesystem::path& path);
Result<Recordings> read_recordings(const std::filesystem::path& root,
                                   const nlohmann::ordered_json& constants);

// Returns the problems of a `flashcore bench` evidence file that have at most a causal mask.
std::vector<Row> report_rows(const nlohmann::ordered_json& evidence);

// The tables of a constants.json, as they are compiled into the library.
class Table {
 public:
  explicit Table(const nlohmann::ordered_json& constants);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  tuning::Tuning tuning() const;

 private:
  nlohmann::ordered_json constants_;
  std::vector<tuning::TileConstants> tiles_;
  tuning::GpuTable table_{};
};

// A choice that the library makes from predicted times.
enum class Choice {
  hopper,         // forward_sm90_latency, _latency_wide and _throughput
  hopper_others,  // the first two, and forward_sm80_throughput
  ampere,         // forward_sm80_latency and _throughput
  sm90_tiles,     // forward_sm90_throughput's tiles
};
inline constexpr Choice kChoices[] = {Choice::hopper, Choice::hopper_others, Choice::ampere,
                                      Choice::sm90_tiles};
const char* name_of(Choice choice);

// An option of a choice: a kernel's or tile's unit of work, and its measured time. A kernel that
// was not timed is no option; a kernel with several tiles has an option for each.
struct Option {
  std::string kernel;
  WorkUnit unit;
  double us;
};
// Empty if the row has no times for this choice.
std::vector<Option> options_of(Choice choice, const Row& row, const DeviceInfo& device);

// All times of a row whose tile is known.
std::vector<Option> timed(const Row& row, const DeviceInfo& device);

// Returns the kernel that the library chooses, by its own functions.
std::string chosen(Choice choice, const Row& row, const tuning::Tuning& tuning,
                   const DeviceInfo& device);

// Returns the index of a problem's fold. It depends only on the shape, so that both types of a
// shape are in the same fold.
uint64_t fold_of(const ForwardProblem& p, uint64_t seed, uint64_t folds);

struct Regret {
  size_t problems = 0;
  double sum = 0, worst = 0;
  std::string worst_problem;
  std::map<std::string, size_t> fastest;  // how often each kernel is the fastest

  double mean() const { return problems == 0 ? 0 : sum / static_cast<double>(problems); }
};
// Adds a row's regret, if it has times for this choice.
void add_regret(Regret& regret, Choice choice, const Row& row, const tuning::Tuning& tuning,
                const DeviceInfo& device);

// Errors of predicted times, in logarithms.
struct PredictionError {
  size_t times = 0;
  double sum = 0;

  double mean() const;  // as a fraction: 0.05 is 5%
};
void add_error(PredictionError& error, const Row& row, const tuning::Tuning& tuning,
               const DeviceInfo& device);

}  // namespace flashcore::replay
