// Remembers what a plan made of the pointers of its last few runs: tensor maps, say, which a run
// with the same tensors needs again.
//
// Any number of threads may use one cache. What is remembered holds nothing alive: it is good as
// long as it is made of the pointers' values alone.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace flashcore::cuda::host {

template <class Made, std::size_t kPointers>
class PointerCache {
 public:
  using Key = std::array<const void*, kPointers>;
  static constexpr std::size_t kEntries = 8;  // layers that take turns with one plan

  // Sets `made` to what belongs to `key`: remembered, or else by make(made), whose error (anything
  // that differs from `none`) is returned and not remembered.
  template <class Error, class Make>
  Error get(const Key& key, Made& made, const Make& make, Error none) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (std::size_t i = 0; i < used_; ++i) {
        if (entries_[i].key == key) {
          made = entries_[i].made;
          return none;
        }
      }
    }
    const Error error = make(made);
    if (error != none) return error;
    const std::lock_guard<std::mutex> lock(mutex_);
    // Another thread may have stored the same meanwhile: then it is there twice, which does no
    // harm.
    entries_[next_] = {key, made};
    next_ = (next_ + 1) % kEntries;
    used_ = used_ < kEntries ? used_ + 1 : kEntries;
    return none;
  }

 private:
  struct Entry {
    Key key;
    Made made;
  };
  std::mutex mutex_;
  std::array<Entry, kEntries> entries_{};
  std::size_t used_ = 0, next_ = 0;  // the first used_ entries are set; next_ is overwritten next
};

}  // namespace flashcore::cuda::host
