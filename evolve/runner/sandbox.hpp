// What a process gives up before it lets a candidate in.
#pragma once

#include <cstdint>

namespace flashcore::evolve {

struct SandboxLimits {
  uint64_t memory_bytes;  // of address space
  uint64_t processor_seconds;
  uint64_t file_bytes;  // largest file that can be written
  uint64_t processes;   // 0: no limit
};

// Also: no core files, and the process ends with the one that started it.
bool set_limits(const SandboxLimits& limits);

// Namespaces of its own for users, the network and IPC, as far as the system allows; whether the
// network is out of reach.
bool leave_network();

// Makes the folder the root of all paths.
bool enter_root(const char* folder);

// The system calls that remain: those that load an object, and then those that compute. The rest
// sends an answer on `control` and ends the process. No new filter loosens an older one.
bool allow_loading(int control);
bool allow_computing(int control);

}  // namespace flashcore::evolve
