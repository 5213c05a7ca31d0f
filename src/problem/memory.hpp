// The memory ranges of a run's tensors, and whether two of them overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "problem/backward.hpp"
#include "problem/problem.hpp"

namespace flashcore {

struct Dimension {
  int64_t extent;
  int64_t stride;  // in elements; 0 if broadcast
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

// A tensor that the problem lacks has 0 bytes.
struct NamedMemory {
  const char* name = "";
  const void* data = nullptr;
  Footprint bytes;
};

// Returns an error if the output shares memory with one of the others.
Status check_apart(const NamedMemory& output, std::span<const NamedMemory> others);

std::array<NamedMemory, 3> rows_written(const ForwardProblem& p, const Arguments& args);
// rows_written(), and the largest values.
std::array<NamedMemory, 5> all_written(const ForwardProblem& p, const Arguments& args);
std::array<NamedMemory, 3> rows_read(const ForwardProblem& p, const Arguments& args);
std::array<NamedMemory, 20> optional_inputs(const ForwardProblem& p, const Arguments& args);
std::array<NamedMemory, 6> gradients_written(const BackwardProblem& p,
                                             const BackwardArguments& args);
std::array<NamedMemory, 2> gradients_read(const BackwardProblem& p, const BackwardArguments& args);

}  // namespace flashcore
