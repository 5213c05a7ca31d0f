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
  int64_t most_heads = 0;     // of queries, in all batch entries together; 0: no limit
  bool fp8 = true;            // among any types
  bool any_dtype = true;      // otherwise `dtype` only, with an f16 O
  DType dtype = DType::f16;   // or f8e4m3, quantised as a user would (fp8_problem.hpp)
  bool any_feature = true;    // otherwise only causal and alignment
  bool any_score = true;      // otherwise scores are products alone: no bias, mask, ALiBi ...
  bool any_head_dim = true;   // otherwise 64, 128 and 256 as far as they go, Dqk == Dv
  bool only_16_bit = false;   // among any types
  bool only_e4m3 = false;     // the same, for kernels of nothing else; and scales of whole heads
  bool same_types = false;    // gradients have the type of the inputs
  bool dense = false;         // no packed batch, lengths or diagonals per entry
  bool grouped_heads = true;  // Hq > Hkv
  bool dropout_state = true;  // half of the dropout has its seed in memory
  bool more_outputs = false;  // O of fp8 with a scale, and largest values
  bool mixes_fp8 = false;     // K and V of other types of fp8 than Q, or each of its own
  double transposed_v = 0;    // share of the fp8 V in one piece that is stored transposed
  bool hostile_values =
      true;  // NaN and Inf in attended and in hidden keys and values, large scores, sinks and slopes
  bool steep_slopes = true;  // among these, finite ones
  bool hostile_heads =
      true;  // and sinks and slopes that are no number, which GPU kernels do not compute yet
  bool caches = false;  // keys and values in caches (random_cache.hpp)
};

// The space without what few kernels compute: 0 for the space itself, up to kNarrowings, each of
// which has less than the one before.
inline constexpr int kNarrowings = 4;
RandomSpace narrowed(RandomSpace space, int narrowing);

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

// Whether both e4m3 and e5m2 are among the types of Q, K and V.
bool mixes_fp8(const Problem& problem);

// One line: shapes, dtypes and features, for a failure's message.
std::string describe(const Problem& problem);

}  // namespace flashcore::bench
