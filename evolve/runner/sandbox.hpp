// The privileges that a process gives up before it runs a candidate.
#pragma once

#include <cstdint>

namespace flashcore::evolve {

struct SandboxLimits {
  uint64_t memory_bytes;  // limit of the address space
  uint64_t processor_seconds;
  uint64_t file_bytes;  // largest file that can be written
  uint64_t processes;   // 0: no limit
};

// Also disables core files, and ends the process together with its parent.
bool set_limits(const SandboxLimits& limits);

// Enters new namespaces for users, the network and IPC, as far as the system allows; returns
// whether the network is unreachable.
bool leave_network();

// Makes the folder the root of all paths.
bool enter_root(const char* folder);

// Installs a filter of system calls: those that load an object, and then those that compute. Any
// other call sends an answer on `control` and ends the process. Filters only accumulate.
bool allow_loading(int control);
bool allow_computing(int control);

}  // namespace flashcore::evolve
