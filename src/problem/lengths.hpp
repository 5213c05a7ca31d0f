// Lengths of batch entries: how they are described, and what the host can read of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "flashcore/flashcore.hpp"
#include "problem/problem.hpp"

namespace flashcore {

// That the tensor, if it is there, is i32 of `wanted` elements.
Status resolve_length_vector(std::string_view name, const std::optional<TensorDesc>& tensor,
                             int64_t wanted, std::string_view shape, VectorInput& out);

// That each of `count` lengths is from 0 to `largest`.
Status check_lengths_of(std::string_view name, const VectorInput& input, const int32_t* data,
                        int64_t count, int64_t largest);

// That entries begin at 0, have up to `longest` rows, and end with the tensor.
Status check_cu_seqlens(std::string_view name, const VectorInput& input, const int32_t* data,
                        int64_t batch, int64_t total, int64_t longest);

}  // namespace flashcore
