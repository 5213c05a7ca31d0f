// Stands for src/cuda/ptx/dependent_launch.cuh.
#pragma once

#include "engine/grid_dependence.hpp"

namespace flashcore::cuda::ptx {

inline void wait_for_earlier_grids(sim::Site site = sim::Site::here()) {
  sim::wait_for_earlier_grid(site);
}
inline void start_next_grid() { sim::launch_dependents(); }

}  // namespace flashcore::cuda::ptx
