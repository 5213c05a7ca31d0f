// The memory ranges of a run's tensors, and whether two of them overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "flashcore/flashcore.hpp"

namespace flashcore {

struct Dimension {
  int64_t extent;
  int64_t stride;  // in elements; 0 if broadcast

  bool operator==(const Dimension&) const = default;
};

// The shape of a tensor in memory; its elements lie in the bytes [first, last).
struct Footprint {
  uintptr_t first = 0;
  uintptr_t last = 0;
  int64_t element_size = 0;
  std::array<Dimension, TensorDesc::kMaxRank> shape{};

  bool empty() const { return first == last; }
};
Footprint footprint(const void* data, size_t element_size, std::span<const Dimension> shape);
Footprint footprint(const TensorDesc& tensor, const void* data);

// Returns whether an element of one tensor shares a byte with an element of the other. Interleaved
// tensors (columns of a fused buffer) do not. Exact, except that the answer is true if the search
// takes too many steps.
bool share_memory(const Footprint& a, const Footprint& b);

// A tensor of a run.
struct NamedMemory {
  std::string_view name;
  const void* data = nullptr;
  DType dtype = DType::f32;
  Footprint bytes;
  bool is_output = false;
  std::string_view may_be =
      {};  // inputs that an output may be, with the same layout: "lse_a lse_b"
};

// Checks that pointers are there for tensors with elements, and aligned; and that no output shares memory with another
// tensor. Of two outputs, the sentence begins with the first.
Status check_memory(std::span<const NamedMemory> all);

}  // namespace flashcore
