#include "problem/memory.hpp"

#include <algorithm>
#include <cstdlib>

#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {

Footprint footprint(const void* data, size_t element_size, std::span<const Dimension> shape) {
  Footprint out{.element_size = static_cast<int64_t>(element_size)};
  int64_t lowest = 0, highest = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto [extent, stride] = shape[d];
    if (extent == 0) return {};
    (stride < 0 ? lowest : highest) += (extent - 1) * stride;
    out.shape[d] = shape[d];
  }
  const auto origin = reinterpret_cast<uintptr_t>(data);
  out.first = origin + static_cast<uintptr_t>(lowest) * element_size;
  out.last = origin + (static_cast<uintptr_t>(highest) + 1) * element_size;
  return out;
}

Footprint footprint(const TensorDesc& tensor, const void* data) {
  std::array<Dimension, TensorDesc::kMaxRank> shape{};
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool used = d < static_cast<size_t>(tensor.rank);
    shape[d] = {used ? tensor.shape[d] : 1, used ? used_stride(tensor, d) : 0};
  }
  return footprint(data, size_of(tensor.dtype), shape);
}

namespace {

// Sums of n[i] * step[i], with each n[i] from 0 to a maximum of its own.
class Sums {
 public:
  // The steps, in bytes, are those up from an element of `a` and those down from one of `b`.
  Sums(const Footprint& a, const Footprint& b) {
    for (const Footprint* const tensor : {&a, &b}) {
      for (const auto& [extent, stride] : tensor->shape) {
        if (extent <= 1 || stride == 0) continue;
        steps_[count_++] = {std::abs(stride) * tensor->element_size, extent - 1};
      }
    }
    std::sort(steps_.begin(), steps_.begin() + count_,
              [](const Step& x, const Step& y) { return x.size < y.size; });
    size_t last = 0;  // merges equal steps
    for (size_t n = 1; n < count_; ++n) {
      if (steps_[n].size == steps_[last].size) {
        steps_[last].most += steps_[n].most;
      } else {
        steps_[++last] = steps_[n];
      }
    }
    count_ = std::min(count_, last + 1);
    for (size_t n = 0; n < count_; ++n) reach_[n + 1] = reach_[n] + steps_[n].size * steps_[n].most;
  }

  // Returns whether some sum lies in [low, high]; also true if the search takes too many steps.
  bool any_in(int64_t low, int64_t high) {
    // The sums of these smallest steps leave no gap that could contain [low, high].
    gapless_ = 0;
    while (gapless_ < count_ && steps_[gapless_].size <= reach_[gapless_] + high - low + 1) {
      ++gapless_;
    }
    return any_in(count_, low, high);
  }

 private:
  struct Step {
    int64_t size, most;
  };

  // any_in() for the sums of the first `count` steps.
  bool any_in(size_t count, int64_t low, int64_t high) {
    if (high < 0 || low > reach_[count]) return false;
    if (count <= gapless_) return true;
    const auto& [size, most] = steps_[count - 1];
    const int64_t missing = std::max<int64_t>(0, low - reach_[count - 1]);
    for (int64_t n = (missing + size - 1) / size; n <= std::min(most, high / size); ++n) {
      if (tries_-- == 0 || any_in(count - 1, low - n * size, high - n * size)) return true;
    }
    return false;
  }

  std::array<Step, 2 * TensorDesc::kMaxRank> steps_{};         // ascending
  std::array<int64_t, 2 * TensorDesc::kMaxRank + 1> reach_{};  // [n]: largest sum of the first n
  size_t count_ = 0, gapless_ = 0;
  int64_t tries_ = 1 << 14;  // views of one buffer need few
};

}  // namespace

// Starts from the distance between a's first element and b's last one, and steps up in a and down in b.
// If the steps sum to that distance, up to less than one element, the two elements reached share a byte.
bool share_memory(const Footprint& a, const Footprint& b) {
  if (a.empty() || b.empty() || a.first >= b.last || b.first >= a.last) return false;
  const auto end = static_cast<int64_t>(b.last - a.first);
  return Sums(a, b).any_in(end - a.element_size - b.element_size + 1, end - 1);
}

namespace {

Status check_pointer(const NamedMemory& one) {
  if (one.data == nullptr) {
    if (one.bytes.empty()) return {};
    return invalid("{}: pointer is null, wanted the data of a tensor of the problem", one.name);
  }
  const size_t alignment = size_of(one.dtype);  // a power of two
  if ((reinterpret_cast<uintptr_t>(one.data) & (alignment - 1)) != 0) {
    return invalid("{}: pointer {} is not aligned, wanted a multiple of {}, the size of {}",
                   one.name, one.data, alignment, to_string(one.dtype));
  }
  return {};
}

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool is_whole =
        (at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ');
    if (is_whole) return true;
  }
  return false;
}

bool is_allowed(const NamedMemory& output, const NamedMemory& other) {
  return output.data == other.data && output.dtype == other.dtype &&
         output.bytes.shape == other.bytes.shape && has_word(output.may_be, other.name);
}

}  // namespace

Status check_memory(std::span<const NamedMemory> all) {
  for (const NamedMemory& one : all) FLASHCORE_RETURN_IF_ERROR(check_pointer(one));
  for (const NamedMemory& output : all) {
    if (!output.is_output) continue;
    for (const NamedMemory& other : all) {
      if (&other <= &output && other.is_output) continue;
      if (!share_memory(output.bytes, other.bytes) || is_allowed(output, other)) continue;
      return invalid("{}: pointer {} overlaps the memory of {}, wanted memory of its own",
                     output.name, output.data, other.name);
    }
  }
  return {};
}

}  // namespace flashcore
