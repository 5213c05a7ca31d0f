// Random problems over the whole feature space, each from one number.
#pragma once

#include <cstdint>
#include <string>

#include "bench/tensor_set.hpp"

namespace flashcore::bench {

// What a backend under test is asked; everything by default.
struct RandomSpace {
  int64_t largest_seqlen = 160;
  int64_t largest_head_dim = 136;
  bool any_dtype = true;      // otherwise f16 only, with an f16 O
  bool any_feature = true;    // otherwise only causal and alignment
  bool any_score = true;      // otherwise scores are products alone: no bias, mask, ALiBi ...
  bool any_head_dim = true;   // otherwise 64 and 128, Dqk == Dv
  bool grouped_heads = true;  // Hq > Hkv
  bool hostile_values =
      true;  // NaN and Inf in attended and in hidden keys and values, large scores
};

// Inputs filled, outputs poisoned. The same seed and space give the same problem everywhere.
HostProblem random_problem(uint64_t seed, const RandomSpace& space = {});

// One line: shapes, dtypes and features, for a failure's message.
std::string describe(const Problem& problem);

}  // namespace flashcore::bench
