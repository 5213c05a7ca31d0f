// Stands for CUDA's header of this name, and for nvcc's implicit additions to every
// source: qualifiers, built-in variables, vectors, intrinsics, warp and block collectives.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/barrier.hpp"
#include "engine/collective.hpp"
#include "engine/global_memory.hpp"
#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) alignas(n)
#define __restrict__ __restrict

#define threadIdx (::flashcore::sim::self().index)
#define blockIdx (::flashcore::sim::own_block().index)
#define blockDim (::flashcore::sim::own_block().dim)
#define gridDim (::flashcore::sim::own_block().grid_dim)

#include "device_functions.h"
#include "host_functions.h"
