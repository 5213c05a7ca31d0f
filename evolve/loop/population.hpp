// Which programs are kept, and what is done with them next.
#pragma once

#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "evolve/store/store.hpp"

namespace flashcore::evolve {

// The best valid programs, the best first; each program once.
std::vector<const Attempt*> elites_of(const std::vector<Attempt>& attempts, int64_t count);

struct Choice {
  std::string operation;                // initial, mutation, crossover, insight
  std::vector<const Attempt*> parents;  // one or two
};

// By the preset:
//   free     mutation of the best
//   insight  mutation of the best, or insight, in turns
//   full     initial until there are `count` elites, then mutation (1 of 2), crossover (3 of 10) or
//            insight (1 of 5), with parents among the elites
Choice choose(const std::string& preset, const std::vector<Attempt>& attempts, int64_t count,
              bench::Random& random);

}  // namespace flashcore::evolve
