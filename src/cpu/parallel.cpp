// Persistent threads that sleep between loops: starting a thread costs more than a small problem.
//
// A loop's tasks are drawn from a shared counter. The caller posts the loop on a board, draws tasks
// like every other thread, takes the loop off the board, and waits for the threads that are still in
// it. So a loop ends even if no other thread ever joins: concurrent and nested loops cannot deadlock.
#include "cpu/parallel.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

namespace flashcore::cpu {
namespace {

class Loop {
 public:
  Loop(int64_t count, const std::function<void(int64_t)>& task) : count_(count), task_(task) {}

  void work() {
    try {
      for (int64_t i = next_++; i < count_; i = next_++) task_(i);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_ = count_;
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  // Guarded by the board's mutex.
  int64_t places = 0;   // helpers that may still join
  int64_t helpers = 0;  // helpers at work
  std::condition_variable left;

 private:
  const int64_t count_;
  const std::function<void(int64_t)>& task_;
  std::atomic<int64_t> next_{0};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

class Board {
 public:
  // The board of this process. It is never destroyed, so threads may wait on it until the process
  // ends. A forked child has none of the threads and starts another board.
  static Board& of_process() {
    static std::atomic<Board*> current{nullptr};
    Board* board = current.load(std::memory_order_acquire);
    if (board != nullptr && board->process_ == getpid()) return *board;
    auto* const fresh = new Board;
    if (current.compare_exchange_strong(board, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;  // another thread was faster; this board has no threads yet
    return *board;
  }

  void run(Loop& loop, int64_t helpers) {
    std::list<Loop*> entry{&loop};  // allocated outside of the lock
    const auto place = entry.begin();
    {
      const std::lock_guard lock(mutex_);
      grow(helpers);
      loop.places = helpers;
      waiting_.splice(waiting_.end(), entry);
    }
    for (int64_t i = 0; i < helpers; ++i) posted_.notify_one();
    loop.work();
    std::unique_lock lock(mutex_);
    if (loop.places > 0) entry.splice(entry.end(), waiting_, place);
    loop.left.wait(lock, [&loop] { return loop.helpers == 0; });
  }

 private:
  void grow(int64_t helpers) {
    try {
      for (; threads_ < helpers; ++threads_) {
        std::thread([this] { help(); }).detach();
      }
    } catch (const std::system_error&) {
      // The system refuses more threads: the existing ones draw all the tasks.
    }
  }

  [[noreturn]] void help() {
    std::unique_lock lock(mutex_);
    for (;;) {
      posted_.wait(lock, [this] { return !waiting_.empty(); });
      Loop& loop = *waiting_.front();
      ++loop.helpers;
      if (--loop.places == 0) waiting_.pop_front();
      lock.unlock();
      loop.work();
      lock.lock();
      if (--loop.helpers == 0) loop.left.notify_one();  // under the lock, or the loop may be gone
    }
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::condition_variable posted_;
  std::list<Loop*> waiting_;
  int64_t threads_ = 0;
};

}  // namespace

int hardware_threads() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& task) {
  const int64_t wanted = std::min<int64_t>(threads > 0 ? threads : hardware_threads(), count);
  Loop loop(count, task);
  if (wanted > 1) {
    Board::of_process().run(loop, wanted - 1);
  } else {
    loop.work();
  }
  loop.rethrow();
}

}  // namespace flashcore::cpu
