// One batch entry in several batches: batch-invariant runs give the same bits in all of them.
//
//   alone | one of three equal ones | padded, next to other lengths | packed, alone | packed, next to
//   longer, shorter and empty ones, with and without max_seqlen
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

class BatchInvarianceCases {
 public:
  // The seed determines the entry, its data and the options. Half of the entries have few queries
  // and up to 20 * largest_seqlen keys; with `latent` all have, and V is in K (RandomSpace).
  BatchInvarianceCases(uint64_t seed, int64_t largest_seqlen, int64_t largest_head_dim,
                       bool latent = false);

  size_t batches() const { return batches_.size(); }
  Problem problem(size_t batch) const;
  HostProblem fill(size_t batch) const;  // inputs filled, outputs poisoned

  // O and LSE of the entry's queries, element by element.
  std::vector<double> results(const HostProblem& host, size_t batch) const;

  // "packed, entry 1 of 3, Sq 5,7,0, Skv 9,700,0", for a failure's message.
  std::string describe(size_t batch) const;

 private:
  enum class Form { dense, padded, packed };
  struct Batch {
    Form form;
    size_t place;                        // the entry's index
    std::vector<int64_t> len_q, len_kv;  // per entry
    bool bounded;                        // packed: max_seqlen_q and max_seqlen_kv are given
  };

  void add(Form form, size_t place, std::vector<int64_t> len_q, std::vector<int64_t> len_kv,
           bool bounded = false);
  void fill_rows(HostProblem& host, size_t batch, const char* name) const;

  uint64_t seed_;
  Problem options_;  // without tensors
  DType dtype_;
  int64_t heads_q_, heads_kv_, head_dim_qk_, head_dim_v_;
  bool sinks_, alibi_, latent_;
  std::vector<Batch> batches_;
};

}  // namespace flashcore::bench
