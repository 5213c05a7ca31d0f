// Handles of the C interface.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace flashcore::api {

// The live objects of a kind, such as plans: a caller's handle is looked up here, and never dereferenced.
template <class Handle>
class LiveHandles {
 public:
  // Never destroyed, since threads may use plans until the process ends. Statically allocated,
  // since the first call may be one that cannot fail.
  static LiveHandles& of_process() noexcept {
    alignas(LiveHandles) static std::byte memory[sizeof(LiveHandles)];
    static auto* const plans = new (memory) LiveHandles;
    return *plans;
  }

  Handle* add(std::shared_ptr<Handle> plan) {
    const std::lock_guard lock(mutex_);
    Handle* const handle = plan.get();
    plans_.emplace(handle, std::move(plan));
    return handle;
  }

  void remove(const Handle* handle) {
    std::shared_ptr<Handle> last;  // destroyed outside of the lock
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(handle);
    if (found == plans_.end()) return;
    last = std::move(found->second);
    plans_.erase(found);
  }

  // Returns null if there is no such handle. The result stays alive if it
  // is destroyed meanwhile.
  std::shared_ptr<const Handle> find(const Handle* handle) {
    const std::shared_lock lock(mutex_);
    const auto found = plans_.find(handle);
    return found == plans_.end() ? nullptr : found->second;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<const Handle*, std::shared_ptr<Handle>> plans_;
};

}  // namespace flashcore::api
