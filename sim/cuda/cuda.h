// Stands for the driver's header of this name: tensor maps.
#pragma once

#include <cstdint>

#include "engine/tensor_map.hpp"

struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(::flashcore::sim::TensorMap) <= sizeof(CUtensorMap));
