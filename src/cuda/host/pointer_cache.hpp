// Caches what a plan derives from the pointers of its last few runs,
// such as tensor maps, which a run with the same tensors needs again.
//
// Thread-safe. A cached value owns nothing: it must depend only on the values of the
// pointers.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace flashcore::cuda::host {

template <class Made, std::size_t kPointers>
class PointerCache {
 public:
  using Key = std::array<const void*, kPointers>;
  static constexpr std::size_t kEntries = 8;  // layers that use one plan alternately

  // Sets `made` to the value for `key`: a cached one, or else the result of make(made),
  // whose error (anything that differs from `none`) is returned and not cached.
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
    // Another thread may have stored the same key meanwhile: a duplicate is
    // harmless.
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
