// What plans of backward_sm90 do alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda/backward_sm90/common/options.hpp"
#include "cuda/backward_sm90/common/row_params.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/launch/launch.hpp"
#include "problem/backward.hpp"

namespace flashcore::cuda::backward_sm90 {

// Everything but the pointers.
void set_row_params(RowParams& params, const BackwardProblem& problem, int block_q);
// The pointers of a run, but for the workspace's.
void bind_row_params(RowParams& params, const BackwardProblem& problem,
                     const BackwardArguments& args);

// What of a problem is left to launches with options: by rows whatever is one, or a head dimension other
// than `head_dim`; by tiles what changes scores or tells sequences apart.
bool needs_option_rows(const BackwardProblem& problem, int head_dim);
bool needs_option_tiles(const ForwardProblem& p);
void set_options(Options& options, const BackwardProblem& problem);
void bind_options(Options& options, const BackwardProblem& problem, const BackwardArguments& args,
                  float* sink_terms);

// Tiles of `block` keys that a head has; in a packed batch slots of packed_tiles.hpp.
int64_t key_tiles_of_head(const ForwardProblem& p, int block);
// Sequences whose tiles lie apart: a packed batch counts as one.
inline int64_t tile_batch(const ForwardProblem& p) { return p.packed ? 1 : p.batch; }
host::TensorLayout tensor_layout(const ForwardProblem& p, const RowStrides& stride, bool queries,
                                 int64_t columns);

// Parts of a workspace, one after the other.
struct WorkspaceParts {
  int64_t end = 0;

  // Where `count` numbers of 4 bytes begin.
  int64_t add(int64_t count);
};

// What a run launches, in this order: rows, tiles, rows. With options rows have kernels of their own, and so have
// tiles where sequences differ or scores are capped.
struct Launches {
  int64_t begin_blocks, tile_blocks, end_blocks;
  bool option_rows, option_tiles;
  launch::Kernel zero_hidden_rows = {}, begin = {}, add_sink_terms = {}, tiles = {}, end = {};
};

// Loads the kernels of rows of `family`, whose names are `prefix` and "begin" or `end`.
Status load_rows(Launches& launches, const launch::Loader& loader, std::string_view family,
                 std::string_view prefix, std::string_view end);

// The launches by rows with options that have nothing to do with tiles.
Status zero_hidden_rows(const Launches& launches, const RowParams& p,
                        const launch::Launcher& launcher);
Status add_sink_terms(const Launches& launches, const RowParams& p, const Options& options,
                      int block_q, const launch::Launcher& launcher);

// Kernels without options get only the first part of `params`, Params.
template <class Params, class OptionParams, class Maps>
Status launch_all(const Launches& launches, const Maps& maps, const OptionParams& params,
                  int block_q, const launch::Launcher& launcher) {
  const auto start = [&](const launch::Kernel& kernel, int64_t blocks, bool options,
                         const auto&... before) {
    const launch::Grid grid{.blocks = dim3(static_cast<unsigned int>(blocks))};
    return options ? launcher.launch(kernel, grid, before..., params)
                   : launcher.launch(kernel, grid, before..., static_cast<const Params&>(params));
  };
  const bool options = launches.option_rows;
  if (options) FLASHCORE_RETURN_IF_ERROR(zero_hidden_rows(launches, params, launcher));
  FLASHCORE_RETURN_IF_ERROR(start(launches.begin, launches.begin_blocks, options));
  if (options) {
    FLASHCORE_RETURN_IF_ERROR(add_sink_terms(launches, params, params.options, block_q, launcher));
  }
  FLASHCORE_RETURN_IF_ERROR(
      start(launches.tiles, launches.tile_blocks, launches.option_tiles, maps));
  return start(launches.end, launches.end_blocks, options);
}

}  // namespace flashcore::cuda::backward_sm90
