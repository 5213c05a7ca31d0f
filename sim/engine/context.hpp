// Fibers' stacks: a fiber's saved context, and the switch from one to another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashcore::sim {

// The point at which a suspended fiber continues.
struct Context {
  void* place = nullptr;
};

// Prepares `context` to run `begin` on the stack that ends at `top`; `begin` must never return.
void prepare(Context& context, unsigned char* top, void (*begin)());

// Saves the running fiber in `from` and continues with `to`.
void switch_context(Context& from, Context& to);

// Memory for the stacks of many fibers, reserved at once and freed at the end.
class Stacks {
 public:
  explicit Stacks(size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  size_t count() const { return count_; }
  unsigned char* bottom(size_t i) const { return memory_ + i * kBytes; }
  // The stacks begin in different sets of the processor's cache.
  unsigned char* top(size_t i) const { return bottom(i + 1) - 64 - i % 64 * 1088; }

  // A mark per 4 bytes of a stack, initially 0: when a register there was last used.
  uint32_t* marks(size_t i) const { return marks_ + i * (kBytes / sizeof(uint32_t)); }

  static constexpr size_t kBytes = size_t{256} * 1024;

 private:
  unsigned char* memory_;
  uint32_t* marks_;
  size_t count_;
};

}  // namespace flashcore::sim
