// Checks that a pointer of a run is present and aligned to its elements.
#pragma once

#include <string_view>

#include "flashcore/flashcore.hpp"

namespace flashcore {

Status check_pointer(std::string_view name, const void* pointer, DType dtype, bool has_elements);

}  // namespace flashcore
