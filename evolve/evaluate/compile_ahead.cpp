#include "evolve/evaluate/compile_ahead.hpp"

#include <algorithm>
#include <mutex>
#include <thread>

namespace flashcore::evolve {

Status compile_ahead(const Task& task, const std::vector<Ahead>& programs, const Tools& tools,
                     int threads, const std::function<void(const Ahead&, const Finding&)>& tell) {
  std::mutex one_at_a_time;
  size_t next = 0;
  Status first_error;
  const auto work = [&] {
    for (;;) {
      const Ahead* mine = nullptr;
      {
        const std::lock_guard lock(one_at_a_time);
        if (next >= programs.size() || !first_error.ok()) return;
        mine = &programs[next++];
      }
      Finding finding;
      const auto compiled = compile(task, mine->program, tools, finding);
      const std::lock_guard lock(one_at_a_time);
      if (!compiled.ok()) {
        first_error = compiled.status();
        return;
      }
      tell(*mine, finding);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return first_error;
}

}  // namespace flashcore::evolve
