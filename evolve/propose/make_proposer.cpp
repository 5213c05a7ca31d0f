#include <algorithm>

#include "bench/text/numbers.hpp"
#include "evolve/propose/proposer.hpp"
#include "evolve/task/folder.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {

Result<std::unique_ptr<Proposer>> make_proposer(const std::string& name, double seconds) {
  if (name == "params" || name == "params:evolution") return params_proposer(Search::evolution);
  if (name == "params:random") return params_proposer(Search::random);
  if (name == "params:local") return params_proposer(Search::local);
  if (name.starts_with("params:")) {
    return invalid("--proposer: is '{}', wanted params:random, params:local or params:evolution",
                   name);
  }
  if (name == "ladder") return replay_proposer(shipped_folder() + "/" + kLadder);
  if (name.starts_with(kReplay)) return replay_proposer(name.substr(kReplay.size()));
  std::vector<std::string> words = bench::split(name, ' ');
  std::erase(words, "");
  if (words.empty())
    return invalid("--proposer: is '', wanted params, replay:FILE, ladder or a program");
  return executable_proposer(std::move(words), seconds);
}

}  // namespace flashcore::evolve
