// A loop over independent tasks on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace flashcore::cpu {

// Returns the number of hardware threads that this process may use; at least 1.
int hardware_threads();

// Calls task(i) once for every i in [0, count), on up to `threads` threads (0: all), including the
// caller's. Returns when all are done, and rethrows the first exception.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& task);

}  // namespace flashcore::cpu
