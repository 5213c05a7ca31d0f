// A run as a picture.
#pragma once

#include <string>
#include <vector>

#include "evolve/store/store.hpp"

namespace flashcore::evolve {

// A self-contained SVG: attempts over the run's time, their scores on a logarithmic axis, and the
// best so far as a line. Its colours follow the reader's light or dark scheme.
std::string plot_svg(const std::vector<Attempt>& attempts, const std::string& title);

// The plot with leaderboard and lineage, as one page that works offline.
std::string report_html(const std::vector<Attempt>& attempts, const std::string& title);

}  // namespace flashcore::evolve
