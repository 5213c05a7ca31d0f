// Random problems over the whole feature space, each from one number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {

// The features that a backend under test supports; by default all.
struct RandomSpace {
  int64_t largest_seqlen = 160;
  int64_t largest_head_dim = 136;
  int64_t most_heads = 0;     // query heads, over all batch entries; 0: no limit
  bool fp8 = true;            // any_dtype includes fp8
  bool any_dtype = true;      // false: only `dtype`, with an f16 O
  DType dtype = DType::f16;   // or f8e4m3, quantised as users do (fp8_problem.hpp)
  bool any_feature = true;    // false: only causal and alignment
  bool any_score = true;      // false: scores are plain products: no bias, mask, ALiBi ...
  bool any_head_dim = true;   // false: 64, 128 and 256 up to the limit, Dqk == Dv
  bool only_16_bit = false;   // any_dtype means 16-bit types
  bool only_e4m3 = false;     // any_dtype means e4m3, with scales of whole heads
  bool same_types = false;    // gradients have the type of the inputs
  bool dense = false;         // no packed batch, lengths or diagonals per entry
  bool grouped_heads = true;  // Hq > Hkv
  bool dropout_state = true;  // half of the dropout has its seed in memory
  bool more_outputs = false;  // O of fp8 with a scale, and largest values
  bool max_logit = false;     // the largest score of each head
  bool mixes_fp8 = false;     // K and V may have other fp8 types than Q
  double transposed_v = 0;    // fraction of the fp8 V in one piece to store transposed
  bool hostile_values =
      true;  // NaN and Inf in attended and in hidden keys and values, large scores, sinks and slopes
  bool steep_slopes = true;  // among these, finite ones
  bool caches = false;       // keys and values in caches (random_cache.hpp)
  bool latent = false;       // V is the first 512 of 576 columns of K, which has one head
};

// The space without features that few kernels compute: 0 for the space itself, up to kNarrowings,
// each with fewer features than the one before.
inline constexpr int kNarrowings = 4;
RandomSpace narrowed(RandomSpace space, int narrowing);

struct RandomSizes {
  int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, head_dim_qk, head_dim_v;
};

// A problem without data, since filling takes most of the time and is wasted if no kernel computes
// it. The same seed and space give the same problem and data everywhere.
class RandomDraw {
 public:
  explicit RandomDraw(uint64_t seed, const RandomSpace& space = {});

  const Problem& problem() const { return problem_; }
  HostProblem fill() const;  // inputs filled, outputs poisoned

 private:
  Random random_;  // its state after the problem has been drawn
  RandomSpace space_;
  RandomSizes sizes_{};
  Problem problem_;
  std::vector<int64_t> packed_q_, packed_kv_;  // empty unless packed
  int64_t bound_q_ = 0, bound_kv_ = 0;         // upper bounds of an entry's lengths
};

// Draws and fills a problem.
HostProblem random_problem(uint64_t seed, const RandomSpace& space = {});

// Returns whether Q, K and V contain both e4m3 and e5m2.
bool mixes_fp8(const Problem& problem);

// One line: shapes, dtypes and features, for a failure's message.
std::string describe(const Problem& problem);

}  // namespace flashcore::bench
