// The tensors of a candidate's calls, in memory shared with its process. Every command gets new
// locations, new inputs, and outputs that are NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "evolve/evaluate/shared_memory.hpp"
#include "evolve/runner/commands.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

// N(0, 1) numbers from a secret seed, drawn once. Inputs are copied from random positions in it.
class NormalPool {
 public:
  NormalPool(DType dtype, bench::Random& secret);
  void fill(std::span<std::byte> out, bench::Random& secret) const;

 private:
  size_t element_;
  std::vector<std::byte> numbers_;
};

class CallMemory {
 public:
  // Room for `calls` calls of every shape. q, k, v and o have type `dtype`, lse is f32.
  static Result<CallMemory> make(DType dtype, std::span<const CallShape> shapes, uint64_t calls);
  // Like make(), but the inputs of all calls are windows into one range of numbers: no two calls
  // have the same inputs, and many calls need little memory.
  static Result<CallMemory> make_windows(DType dtype, std::span<const CallShape> shapes,
                                         uint64_t calls);

  // The number of calls of a shape that fit.
  uint64_t room_for(const CallShape& shape) const;

  const SharedMemory& inputs() const { return inputs_; }
  const SharedMemory& outputs() const { return outputs_; }

  // Lays out `calls` calls. The memory around the tensors, and the outputs, are set to `poison`.
  RunCommand prepare(const CallShape& shape, uint64_t calls, bench::Random& secret,
                     std::byte poison = std::byte{0xFF});

  // Also fills the inputs.
  RunCommand prepare(const CallShape& shape, uint64_t calls, const NormalPool& pool,
                     bench::Random& secret);

  // Tensors of call `i` of the last command.
  std::span<std::byte> q(uint64_t i);
  std::span<std::byte> k(uint64_t i);
  std::span<std::byte> v(uint64_t i);
  std::span<std::byte> o(uint64_t i);
  std::span<std::byte> lse(uint64_t i);

  // Returns whether only the outputs of the last command were written.
  bool surroundings_intact() const;
  // Returns whether an element of an output was not written, or is NaN.
  bool has_nan();

 private:
  static Result<CallMemory> make(DType dtype, uint64_t window, std::span<const CallShape> shapes,
                                 uint64_t calls);
  CallMemory(DType dtype, uint64_t window, SharedMemory inputs, SharedMemory outputs)
      : dtype_(dtype), window_(window), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  DType dtype_;
  uint64_t window_;  // bytes that all calls' inputs share; 0: each has its own
  SharedMemory inputs_, outputs_;
  std::vector<CallTensors> calls_;
  CallShape shape_{};
  uint64_t used_ = 0;  // in the outputs' memory
  std::byte poison_{};
};

}  // namespace flashcore::evolve
