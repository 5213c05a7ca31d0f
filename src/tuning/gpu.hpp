// What the cost model knows of GPUs: a file for each that was measured (src/tuning/gpus),
// compiled into the library, and how those are scaled to one that was not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "tuning/cost_model.hpp"

namespace flashcore::tuning {

// What DeviceInfo leaves out. 0: not known.
struct DeviceSpeed {
  double sm_clock_mhz = 0, memory_gb_s = 0;
};

struct TileConstants {
  std::string_view tile;
  int64_t head_dim;  // the larger of Q's and V's
  Constants constants;
};

// One file. Times are microseconds.
struct GpuTable {
  std::string_view gpu;  // the name that its driver gives it
  int64_t compute_capability, multiprocessors;
  DeviceSpeed speed;
  double launch;
  double error;                   // of predictions for problems that the fit did not see, a part
  double most_waves, most_steps;  // of the problems that were measured: see is_measured()
  std::span<const TileConstants> tiles;
};

std::span<const GpuTable> gpu_tables();

// The constants of a tile: between the head dimensions that were measured linear, outside of them
// those of the nearest.
std::optional<Constants> constants_of(const GpuTable& table, std::string_view tile,
                                      int64_t head_dim);

// A table on a GPU: its own, or for a GPU without a file that of the most similar one, with its
// times scaled by the clocks. SMs and the memory's bandwidth are always those of the GPU itself.
struct Tuning {
  const GpuTable* table = nullptr;
  bool is_own = false;  // the table was measured on such a GPU
  double time_scale = 1;
  double bytes_a_us = 0;
  int64_t multiprocessors = 0;

  // By which part of its own a time must be better before it counts: on a GPU that was not measured
  // by what both of two predictions are off.
  double margin() const { return is_own ? 0 : 2 * table->error; }
  // "not measured on this GPU: times are scaled from NVIDIA H200", or empty.
  std::string provenance() const;
};

bool has_own_table(const DeviceInfo& device);
// `speed` is looked at only where the device has no table of its own.
Tuning tuning_of(const DeviceInfo& device, const DeviceSpeed& speed = {});

// Infinite for a tile without constants.
double predicted_us(const Tuning& tuning, const ForwardProblem& p, const WorkUnit& unit);

// Whether a problem is as small as those that were measured with every kernel.
bool is_measured(const Tuning& tuning, const ForwardProblem& p);

}  // namespace flashcore::tuning
