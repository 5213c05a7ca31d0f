// A loop over independent tasks on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace flashcore::cpu {

// Hardware threads that this process may use; at least 1.
int hardware_threads();

// Calls task(i) for every i in [0, count), each once, on up to `threads` threads (0: all), the
// caller's among them. Returns when all are done; the first exception is thrown again here.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& task);

}  // namespace flashcore::cpu
