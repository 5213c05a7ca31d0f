// The packed bits that say which keys of a speculative tree a query sees: docs/semantics.md.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

// One query's bits. Bit t belongs to key `first + t`. Earlier keys are not affected; keys past the
// last word are removed.
class TreeRow {
 public:
  static constexpr int64_t kWordBits = 32;

  // `words` is the data of the problem's tree mask, which the host can read; it may be null if the
  // mask has no words.
  TreeRow(const ForwardProblem& p, const int32_t* words, const Sequence& s, int64_t b, int64_t i)
      : words_(words),
        first_word_(b * p.tree_mask.batch + (s.q_begin + i) * p.tree_mask.query),
        stride_(p.tree_mask.word),
        bits_(p.tree_mask.words * kWordBits),
        first_(s.offset) {}

  int64_t first() const { return first_; }

  bool allows(int64_t key) const {
    const int64_t t = key - first_;
    if (t < 0) return true;
    if (t >= bits_) return false;
    const auto word = static_cast<uint32_t>(words_[first_word_ + t / kWordBits * stride_]);
    return ((word >> (t % kWordBits)) & 1u) != 0;
  }

 private:
  const int32_t* words_;
  int64_t first_word_;
  int64_t stride_;
  int64_t bits_;
  int64_t first_;
};

}  // namespace flashcore
