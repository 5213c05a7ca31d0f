// Chooses which programs to keep, and what to do with them next.
#pragma once

#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "evolve/store/store.hpp"

namespace flashcore::evolve {

// The best valid programs, best first; each program once.
std::vector<const Attempt*> elites_of(const std::vector<Attempt>& attempts, int64_t count);

struct Choice {
  std::string operation;                // initial, mutation, crossover, insight
  std::vector<const Attempt*> parents;  // one or two
};

// Chooses by preset:
//   free     mutation of the best
//   insight  mutation of the best and insight, alternating
//   full     initial until there are `count` elites, then mutation (1 of 2), crossover (3 of 10) or
//            insight (1 of 5), with parents among the elites
Choice choose(const std::string& preset, const std::vector<Attempt>& attempts, int64_t count,
              bench::Random& random);

}  // namespace flashcore::evolve
