// Tensor maps by the pointers that they were made for: encoding them costs more than a launch, and
// most runs of a plan come with pointers that it has seen.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace flashcore {

// The last few sets of maps of one plan, whose shapes and strides are the plan's. Any number of
// threads may ask at the same time.
template <class Maps, std::size_t kPointers>
class TensorMapCache {
 public:
  using Key = std::array<const void*, kPointers>;
  static constexpr std::size_t kEntries = 8;

  // Fills `maps` from the cache, or by make(maps), whose result is 0 when it could. Returns that.
  template <class Make>
  auto find(const Key& key, Maps& maps, const Make& make) -> decltype(make(maps)) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < used_; ++i) {
      if (entries_[i].key != key) continue;
      maps = entries_[i].maps;
      return {};
    }
    const auto error = make(maps);
    if (error != decltype(make(maps)){}) return error;
    entries_[next_] = {key, maps};
    next_ = (next_ + 1) % kEntries;
    if (used_ < kEntries) ++used_;
    return error;
  }

 private:
  struct Entry {
    Key key{};
    Maps maps{};
  };
  std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  std::size_t used_ = 0;  // entries in use
  std::size_t next_ = 0;  // the one to be replaced
};

}  // namespace flashcore
