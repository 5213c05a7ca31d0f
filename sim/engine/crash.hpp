// A kernel that reads or writes where nothing lies ends the whole process: this says which thread
// it was, and what had been found before.
#pragma once

#include <signal.h>

#include <array>

#include "engine/finding.hpp"

namespace flashcore::sim {

// While it lives, a crash is reported on the standard error, and then ends the process as before.
class CrashReport {
 public:
  explicit CrashReport(const Findings& findings);
  ~CrashReport();
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

 private:
  static void on_signal(int signal, siginfo_t* info, void* context);
  void give_back() const;  // what handled the signals before

  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  std::array<struct sigaction, kSignals.size()> before_{};
  stack_t stack_before_{};
  const Findings& findings_;
};

}  // namespace flashcore::sim
