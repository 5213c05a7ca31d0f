#include "evolve/loop/population.hpp"

#include <algorithm>
#include <set>

namespace flashcore::evolve {

std::vector<const Attempt*> elites_of(const std::vector<Attempt>& attempts, int64_t count) {
  std::vector<const Attempt*> valid;
  std::set<std::string> seen;
  for (const Attempt& one : attempts) {
    if (one.outcome == "valid" && seen.insert(one.hash).second) valid.push_back(&one);
  }
  std::stable_sort(valid.begin(), valid.end(),
                   [](const Attempt* a, const Attempt* b) { return a->score > b->score; });
  if (std::ssize(valid) > count) valid.resize(static_cast<size_t>(count));
  return valid;
}

Choice choose(const std::string& preset, const std::vector<Attempt>& attempts, int64_t count,
              bench::Random& random) {
  const std::vector<const Attempt*> elites = elites_of(attempts, count);
  if (preset == "free") return {"mutation", {elites.front()}};
  if (preset == "insight") {
    return {attempts.size() % 2 == 1 ? "mutation" : "insight", {elites.front()}};
  }
  if (std::ssize(elites) < count) return {"initial", {&attempts.front()}};
  const auto first = static_cast<size_t>(random.integer(0, std::ssize(elites) - 1));
  const double kind = random.uniform();
  if (kind < 0.5 || elites.size() == 1) return {"mutation", {elites[first]}};
  if (kind < 0.7) return {"insight", {elites[first]}};
  const auto other = static_cast<size_t>(random.integer(1, std::ssize(elites) - 1));
  return {"crossover", {elites[first], elites[(first + other) % elites.size()]}};
}

}  // namespace flashcore::evolve
