// What quantisation on a GPU refuses; tested without one.
#pragma once

#include <string>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/quantize.hpp"

namespace flashcore::cuda::quantize::rows {

// How the rows of an entry are cut (params.hpp).
struct Cut {
  bool in_tiles = false;  // groups lie in tiles: one launch
  int64_t block = 1;      // rows that a scale serves
  int64_t span = 1, tile_rows = 1, tiles_a_span = 1, tiles = 0;
};
Cut cut_of(const QuantizeProblem& p);

// One sentence, or empty. `targets`: what the kernels were compiled for, as in device_code.hpp.
std::string refusal(const QuantizeProblem& p, const DeviceInfo& device, std::string_view targets);

}  // namespace flashcore::cuda::quantize::rows
