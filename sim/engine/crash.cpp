#include "engine/crash.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "engine/machine.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

// The handler's own stack: a fiber's stack may have overflowed.
alignas(16) std::byte handlers_stack[64 * 1024];
const CrashReport* reporter = nullptr;

}  // namespace

CrashReport::CrashReport(const Findings& findings) : findings_(findings) {
  reporter = this;
  stack_t stack{};
  stack.ss_sp = handlers_stack;
  stack.ss_size = sizeof handlers_stack;
  ::sigaltstack(&stack, &stack_before_);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

CrashReport::~CrashReport() {
  give_back();
  ::sigaltstack(&stack_before_, nullptr);
  reporter = nullptr;
}

void CrashReport::give_back() const {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

// The process is lost, so allocating memory here is acceptable. The instruction
// runs again on return, and then its signal takes its original course.
void CrashReport::on_signal(int signal, siginfo_t* info, void* /*context*/) {
  const CrashReport& report = *reporter;
  report.give_back();
  std::string text = format("simulator: signal %d (%s)", signal, ::strsignal(signal));
  if (signal == SIGSEGV || signal == SIGBUS) text += format(" at address %p", info->si_addr);
  if (current_thread != nullptr) text += " in " + name_of(*current_thread);
  text += report.findings_.empty() ? "; nothing was found before\n" : "; found before:\n";
  text += report.findings_.text();
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace flashcore::sim
