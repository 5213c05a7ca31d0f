// The gate for problems whose whole fp64 reference would take minutes: blocks of rows are judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/gate/gates.hpp"

namespace flashcore::bench {

// Copies elements [begin, begin + to.elements()) of a tensor, in row-major order of its indices,
// into all of the contiguous tensor `to`.
using ReadElements = std::function<void(std::string_view name, int64_t begin, HostTensor& to)>;

ReadElements reader_of(const HostProblem& host);  // which must outlive it

// Where a head lies in [B|1, H|1]; in [B|1, H|1, blocks], in groups of that many elements.
int64_t element_of_head(const TensorDesc& all, int64_t batch, int64_t head);

// Query rows [first, first + count) of one head.
struct RowBlock {
  int64_t batch, head, first, count;
};

// Reference of a few blocks of query rows, spread over batch entries, heads and positions, always
// the first and the last rows among them; with dropout, whose draw depends on the place, the first
// rows of the first head only. For contiguous q, k, v, o, lse, bias, mask, ALiBi slopes, lengths of
// KV and a tree mask without another one, and any option that is a number.
class SampledReference {
 public:
  // Stays below about `flop` operations, and takes at least two blocks where there are two.
  static Result<SampledReference> compute(const Problem& problem, const ReadElements& inputs,
                                          double flop, int threads = 0);
  static Result<SampledReference> compute(const HostProblem& host, double flop, int threads = 0);

  std::vector<RowBlock> blocks() const;
  int64_t rows() const;

  // Judges those rows of what `outputs` reads: "o", and "lse" if it is there.
  Verdict judge(const ReadElements& outputs, bool has_lse) const;

  // Judges O alone, of its rows in the order of the blocks: [rows(), head_dim] of the type of O.
  Result<Verdict> judge_rows(std::span<const std::byte> rows) const;

  // Judges those rows of the outputs, and that every element of O was written and none is NaN.
  Verdict judge(const HostProblem& host) const;

 private:
  struct Block {
    RowBlock rows;
    HostProblem outputs;  // O and LSE of one head and `count` queries
    Reference reference;
  };
  int64_t heads_ = 0, seqlen_q_ = 0;
  std::vector<Block> blocks_;
};

}  // namespace flashcore::bench
