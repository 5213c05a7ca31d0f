// Environment variables: the one place that reads them.
#pragma once

#include <cstdlib>

namespace flashcore {

// Null if it is not set. A program with more rights than its user (set-user-ID) sees no variable: its user chose them.
inline const char* read_variable(const char* name) { return ::secure_getenv(name); }

}  // namespace flashcore
