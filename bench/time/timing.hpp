// Wall or device time of one call, with one protocol per device, the same for peers and kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Timing {
  double p50 = 0;  // seconds per call
  double p90 = 0;
  int64_t samples = 0;
  int64_t calls_per_sample = 1;
  std::vector<double> sample_seconds;  // per call, in the order of measurement
};

// Combines rounds of one subject, which alternated with others: quantiles over all samples.
Timing pooled(const std::vector<Timing>& rounds);

// Nearest-rank quantile, 0 to 1, of at least one value.
double quantile(std::vector<double> values, double q);

// Sets the count and the quantiles from the samples.
void summarise(Timing& timing);

// {"p50_us", "p90_us", "samples", "calls_per_sample"}
nlohmann::ordered_json timing_evidence(const Timing& timing);

using TimedCall = std::function<Status(Stream)>;

class Timer {
 public:
  virtual ~Timer() = default;
  virtual std::string protocol() const = 0;  // one line for a report
  virtual Result<Timing> time(const TimedCall& call) = 0;
};

// A timing protocol. A report that takes several rounds divides the samples among them.
struct Protocol {
  std::string name;  // "sustained", "idle", "wall"
  std::string text;  // one sentence
  int rounds = 1;
  bool by_name = false;  // measured only where it is asked for
};

// The median of at least `min_samples` after a warm-up; a sample repeats short calls until it is
// long enough for the clock.
class CpuTimer final : public Timer {
 public:
  struct Limits {
    int64_t min_samples = 5;
    int64_t max_samples = 101;
    double seconds = 1.0;          // stop after this, with min_samples
    double sample_seconds = 1e-3;  // minimum length of a sample
    double warm_up_seconds = 0.05;
    int processor_threads = 0;  // not 0: a second is this process's CPU time, of so many threads
  };

  CpuTimer() = default;
  explicit CpuTimer(const Limits& limits) : limits_(limits) {}
  std::string protocol() const override;
  Result<Timing> time(const TimedCall& call) override;

 private:
  Result<double> measure(const TimedCall& call, int64_t calls) const;

  Limits limits_;
};

// Returns the timer of a device. The CUDA one is defined in timing_cuda.cpp or no_cuda.cpp.
Result<std::unique_ptr<Timer>> make_timer(Device device);
Result<std::unique_ptr<Timer>> make_cuda_timer(int32_t index);

}  // namespace flashcore::bench
