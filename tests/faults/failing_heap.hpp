// An operator new whose n-th call fails, for programs that link failing_heap.cpp.
#pragma once

#include <atomic>
#include <cstdint>

namespace flashcore::tests {

struct FailingHeap {
  std::atomic<int64_t> living{0};         // blocks that were made and not freed
  std::atomic<int64_t> until_failure{0};  // the call that fails, counted down; below 1: none does

  void fail_at(int64_t call) { until_failure = call; }
  // Ends it, and returns whether a call has failed.
  bool has_failed() { return until_failure.exchange(0) < 1; }
};

extern constinit FailingHeap failing_heap;

}  // namespace flashcore::tests
