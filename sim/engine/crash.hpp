// A kernel that accesses unmapped memory ends the whole
// process: this reports the thread, and the findings so far.
#pragma once

#include <signal.h>

#include <array>

#include "engine/finding.hpp"

namespace flashcore::sim {

// During its lifetime, a crash is reported on the standard error, and then ends the process as usual.
class CrashReport {
 public:
  explicit CrashReport(const Findings& findings);
  ~CrashReport();
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

 private:
  static void on_signal(int signal, siginfo_t* info, void* context);
  void give_back() const;  // restores the previous signal handlers

  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  std::array<struct sigaction, kSignals.size()> before_{};
  stack_t stack_before_{};
  const Findings& findings_;
};

}  // namespace flashcore::sim
