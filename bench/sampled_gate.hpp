// The gate for problems whose whole fp64 reference would take minutes: blocks of rows are judged.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/gates.hpp"

namespace flashcore::bench {

// Reference of a few blocks of query rows, spread over batch entries, heads and positions, first
// and last rows among them. For problems of q, k, v, o, lse, causal and window only.
class SampledReference {
 public:
  // Stays below about `flop` operations, and takes at least one block.
  static Result<SampledReference> compute(const HostProblem& host, double flop, int threads = 0);

  int64_t rows() const;

  // Judges those rows of the outputs, and that every element of O was written and none is NaN.
  Verdict judge(const HostProblem& host) const;

 private:
  struct Block {
    int64_t batch, head, first, count;
    HostProblem outputs;  // O and LSE of one head and `count` queries
    Reference reference;
  };
  std::vector<Block> blocks_;
};

}  // namespace flashcore::bench
