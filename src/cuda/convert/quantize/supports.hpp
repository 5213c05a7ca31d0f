// Limits of quantisation on a GPU; tested without a GPU.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/quantize.hpp"

namespace flashcore::cuda::convert::quantize {

// How the rows of a sequence are divided (params.hpp).
struct Cut {
  bool in_tiles = false;  // groups are inside tiles: one launch
  int64_t block = 1;      // rows per scale
  int64_t span = 1, tile_rows = 1, tiles_per_span = 1, tiles = 0;
};
Cut cut_of(const QuantizeProblem& p);

// Returns one sentence, or an empty string. `targets`: the compiled targets, as in device_code.hpp.
std::string refusal(const QuantizeProblem& p, const DeviceInfo& device, std::string_view targets);

}  // namespace flashcore::cuda::convert::quantize
