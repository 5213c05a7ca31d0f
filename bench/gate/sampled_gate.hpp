// The gate for problems whose whole fp64 reference would take minutes: judges blocks of rows.
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
// into the contiguous tensor `to`.
using ReadElements = std::function<void(std::string_view name, int64_t begin, HostTensor& to)>;

ReadElements reader_of(const HostProblem& host);  // `host` must outlive it

// The index of a head in [B|1, H|1]; in [B|1, H|1, blocks], in groups of this many elements.
int64_t element_of_head(const TensorDesc& all, int64_t batch, int64_t head);

// Query rows [first, first + count) of one head.
struct RowBlock {
  int64_t batch, head, first, count;
};

// The reference of a few blocks of query rows, spread over batch entries, heads and positions,
// always including the first and the last rows; with dropout, whose mask depends on the position,
// only the first rows of the first head. Supports contiguous q, k, v, o, lse, bias, mask, ALiBi
// slopes, KV lengths, a tree mask without another mask, and every numeric option.
class SampledReference {
 public:
  // Stays below about `flop` operations, but takes at least two blocks if there are two.
  static Result<SampledReference> compute(const Problem& problem, const ReadElements& inputs,
                                          double flop, int threads = 0);
  static Result<SampledReference> compute(const HostProblem& host, double flop, int threads = 0);

  std::vector<RowBlock> blocks() const;
  int64_t rows() const;

  // Judges these rows of the tensors that `outputs` reads: "o", and "lse" if present.
  Verdict judge(const ReadElements& outputs, bool has_lse) const;

  // Judges only O, given its rows in the order of the blocks: [rows(), head_dim] of O's type.
  Result<Verdict> judge_rows(std::span<const std::byte> rows) const;

  // Judges these rows of the outputs, and that every element of O was written and none is NaN.
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
