// Random backward problems over the whole feature space, each from one number.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cases/random_problem.hpp"
#include "bench/tensors/backward_set.hpp"

namespace flashcore::bench {

class RandomBackward {
 public:
  explicit RandomBackward(uint64_t seed, const RandomSpace& space = {});

  const Problem& problem() const { return problem_; }
  const Gradients& gradients() const { return gradients_; }
  // Fills the inputs, computes O and LSE by the reference, and poisons the outputs; rows of d_o
  // past the queries in use are NaN.
  Result<HostBackward> fill(int threads = 0) const;

 private:
  uint64_t seed_;
  RandomDraw forward_;
  Problem problem_;  // the forward draw's, with an LSE
  Gradients gradients_;
};

// One line: the forward problem, and the gradients.
std::string describe(const Problem& problem, const Gradients& gradients);

}  // namespace flashcore::bench
