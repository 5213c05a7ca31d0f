// Random problems over the whole feature space, each from one number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// What a backend under test is asked; everything by default.
struct RandomSpace {
  int64_t largest_seqlen = 160;
  int64_t largest_head_dim = 136;
  bool fp8 = true;            // among any types
  bool any_dtype = true;      // otherwise `dtype` only, with an f16 O
  DType dtype = DType::f16;   // or f8e4m3, quantised as a user would (fp8_problem.hpp)
  bool any_feature = true;    // otherwise only causal and alignment
  bool any_score = true;      // otherwise scores are products alone: no bias, mask, ALiBi ...
  bool any_head_dim = true;   // otherwise 64 and 128, Dqk == Dv
  bool grouped_heads = true;  // Hq > Hkv
  bool hostile_values =
      true;  // NaN and Inf in attended and in hidden keys and values, large scores
};

struct RandomSizes {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim_qk, head_dim_v;
};

// A problem without data, which takes most of the time: what nobody computes need not be filled.
// The same seed and space give the same problem and data everywhere.
class RandomDraw {
 public:
  explicit RandomDraw(uint64_t seed, const RandomSpace& space = {});

  const Problem& problem() const { return problem_; }
  HostProblem fill() const;  // inputs filled, outputs poisoned

 private:
  Random random_;  // as it is when the problem has been drawn
  RandomSpace space_;
  RandomSizes sizes_{};
  Problem problem_;
  std::vector<int64_t> packed_q_, packed_kv_;  // empty unless packed
  int64_t bound_q_ = 0, bound_kv_ = 0;         // of an entry's lengths
};

// Drawn and filled.
HostProblem random_problem(uint64_t seed, const RandomSpace& space = {});

// One line: shapes, dtypes and features, for a failure's message.
std::string describe(const Problem& problem);

}  // namespace flashcore::bench
