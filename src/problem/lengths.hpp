// Checks of lengths of batch entries, where the host can read them.
#pragma once

#include <cstdint>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// Checks that each of `count` lengths is from 0 to `largest`.
Status check_lengths_of(std::string_view name, const VectorInput& input, const int32_t* data,
                        int64_t count, int64_t largest);

// Checks that entries begin at 0, have at most `longest` rows, and end with the tensor.
Status check_cu_seqlens(std::string_view name, const VectorInput& input, const int32_t* data,
                        int64_t batch, int64_t total, int64_t longest);

}  // namespace flashcore
