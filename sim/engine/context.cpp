#include "engine/context.hpp"

#include <sys/mman.h>

#include <new>

#if defined(__x86_64__)
// Saves the callee-saved registers on the old stack, and restores them from the new
// one. The floating-point control words are the same everywhere and need not be saved.
extern "C" void flashcore_sim_switch(void** from, void* to);
asm(R"(
.text
.globl flashcore_sim_switch
.type flashcore_sim_switch, @function
flashcore_sim_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size flashcore_sim_switch, .-flashcore_sim_switch
)");
#else
#include <ucontext.h>
#endif

namespace flashcore::sim {

#if defined(__x86_64__)

void prepare(Context& context, unsigned char* top, void (*begin)()) {
  auto** place = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) / 16 * 16);
  *--place = nullptr;  // `begin` has no caller; the stack is aligned as after a call
  *--place = reinterpret_cast<void*>(begin);
  constexpr int kSavedRegisters = 6;
  for (int i = 0; i < kSavedRegisters; ++i) *--place = nullptr;
  context.place = static_cast<void*>(place);
}

void switch_context(Context& from, Context& to) { flashcore_sim_switch(&from.place, to.place); }

#else

// Uses the system's context switch, which makes a system call each time.
void prepare(Context& context, unsigned char* top, void (*begin)()) {
  auto* const user = new ucontext_t;
  getcontext(user);
  user->uc_stack.ss_sp = top - Stacks::kBytes / 2;
  user->uc_stack.ss_size = Stacks::kBytes / 2;
  user->uc_link = nullptr;
  makecontext(user, begin, 0);
  delete static_cast<ucontext_t*>(context.place);
  context.place = user;
}

void switch_context(Context& from, Context& to) {
  if (from.place == nullptr) from.place = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from.place), static_cast<ucontext_t*>(to.place));
}

#endif

namespace {
void* reserve(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}
}  // namespace

Stacks::Stacks(size_t count)
    : memory_(static_cast<unsigned char*>(reserve(count * kBytes))),
      marks_(static_cast<uint32_t*>(reserve(count * kBytes))),
      count_(count) {}

Stacks::~Stacks() {
  munmap(memory_, count_ * kBytes);
  munmap(marks_, count_ * kBytes);
}

}  // namespace flashcore::sim
