// The tensors of a candidate's calls, in memory shared with its process. Every command gets new
// places, new inputs, and outputs that are NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "evolve/evaluate/shared_memory.hpp"
#include "evolve/runner/commands.hpp"

namespace flashcore::evolve {

// Numbers of N(0, 1) from a secret seed, drawn once. Inputs are copied from random places of it.
class NormalPool {
 public:
  explicit NormalPool(bench::Random& secret);
  void fill(std::span<float> out, bench::Random& secret) const;

 private:
  std::vector<float> numbers_;
};

class CallMemory {
 public:
  // Room for `calls` calls of every shape.
  static Result<CallMemory> make(std::span<const CallShape> shapes, uint64_t calls);

  // How many calls of a shape there is room for.
  uint64_t room_for(const CallShape& shape) const;

  const SharedMemory& inputs() const { return inputs_; }
  const SharedMemory& outputs() const { return outputs_; }

  // Lays out `calls` calls. What lies around the tensors, and the outputs, become `poison`.
  RunCommand prepare(const CallShape& shape, uint64_t calls, bench::Random& secret,
                     std::byte poison = std::byte{0xFF});

  // Of call `i` of the last command.
  std::span<float> q(uint64_t i);
  std::span<float> k(uint64_t i);
  std::span<float> v(uint64_t i);
  std::span<float> o(uint64_t i);
  std::span<float> lse(uint64_t i);

  // Whether nothing but the outputs of the last command was written.
  bool surroundings_intact() const;
  // Whether an element of an output was not written, or is NaN.
  bool has_nan();

 private:
  CallMemory(SharedMemory inputs, SharedMemory outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  static std::span<float> floats(const SharedMemory& memory, uint64_t at, int64_t count);

  SharedMemory inputs_, outputs_;
  std::vector<CallTensors> calls_;
  CallShape shape_{};
  uint64_t used_ = 0;  // of the outputs' memory
  std::byte poison_{};
};

}  // namespace flashcore::evolve
