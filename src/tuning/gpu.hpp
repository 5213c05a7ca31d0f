// The cost model's data on GPUs: a file for each measured GPU (src/tuning/gpus), compiled into the
// library, and scaling to GPUs that were not measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "tuning/cost_model.hpp"

namespace flashcore::tuning {

// Properties that DeviceInfo leaves out. 0: not known.
struct DeviceSpeed {
  double sm_clock_mhz = 0, memory_gb_s = 0;
};

struct TileConstants {
  std::string_view tile;
  int64_t head_dim;  // the larger of Dqk and Dv
  Constants constants;
};

// Measured limits of choices that the cost model does not make; src/plan says where each is used.
struct Rules {
  int64_t fp8_as_bf16_above_head_dim, fp8_as_bf16_from_rows;
  int64_t decode_most_rows;
  // decode_sm90: its beginning and end, with one tile of rows and with more; 128 keys of a tile on one SM, and up to
  // head dimension 64; keys that a tile's end counts as.
  double decode_begin_us, decode_tiles_us, decode_granule_us, decode_narrow_us;
  int64_t decode_end_granules;
  int64_t latent_tiles_of_16_rows;
  int64_t paged_rows, sm80_paged_rows;
  double gain_of_192x64, gain_of_192x64_on_diagonal;
  int64_t split_queries;
};

// One file of src/tuning/gpus. Times are in microseconds.
struct GpuTable {
  std::string_view gpu;  // as its driver reports it
  int64_t compute_capability, multiprocessors;
  DeviceSpeed speed;
  Rules rules;
  double launch;
  double error;                   // relative error of predictions for problems outside of the fit
  double most_waves, most_steps;  // over the measured problems: see is_measured()
  std::span<const TileConstants> tiles;
};

std::span<const GpuTable> gpu_tables();

// The constants of a tile: interpolated linearly between the measured head dimensions, and the
// nearest ones outside of their range.
std::optional<Constants> constants_of(const GpuTable& table, std::string_view tile,
                                      int64_t head_dim);

// A table applied to a GPU: its own, or for a GPU without a file the table of the most similar one,
// with its times scaled by the clocks. SMs and memory bandwidth are always the GPU's own.
struct Tuning {
  const GpuTable* table = nullptr;
  bool is_own = false;  // the table was measured on such a GPU
  double time_scale = 1;
  double bytes_per_us = 0;
  int64_t multiprocessors = 0;

  // The relative gain that a predicted time needs before it counts. On a GPU that was not measured:
  // the combined error of two predictions.
  double margin() const { return is_own ? 0 : 2 * table->error; }
  // Returns "not measured on this GPU: times are scaled from NVIDIA H200", or "".
  std::string provenance() const;
};

bool has_own_table(const DeviceInfo& device);
// `speed` is used only if the device has no table of its own.
Tuning tuning_of(const DeviceInfo& device, const DeviceSpeed& speed = {});

// Returns infinity for a tile without constants.
double predicted_us(const Tuning& tuning, const ForwardProblem& p, const WorkUnit& unit);

// Returns whether a problem is within the sizes that were measured with every kernel.
bool is_measured(const Tuning& tuning, const ForwardProblem& p);

}  // namespace flashcore::tuning
