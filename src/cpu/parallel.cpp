// Threads that live for one loop and draw tasks from a shared counter.
#include "cpu/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace flashcore::cpu {

int hardware_threads() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) task(i);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  const int64_t wanted = std::min<int64_t>(threads > 0 ? threads : hardware_threads(), count);
  std::vector<std::jthread> others;
  try {
    for (int64_t t = 1; t < wanted; ++t) others.emplace_back(work);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are draw all the tasks.
  }
  work();
  others.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace flashcore::cpu
