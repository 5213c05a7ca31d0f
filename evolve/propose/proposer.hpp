// The sources of new programs.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evolve/store/store.hpp"
#include "evolve/task/program.hpp"

namespace flashcore::evolve {

struct Request {
  int64_t attempt = 0;
  uint64_t random = 0;  // the same whenever this attempt is requested
  std::string preset;
  std::string operation;
  std::vector<const Attempt*> parents;  // one or more
  std::vector<const Attempt*> elites;   // best first
  const std::vector<Attempt>* attempts = nullptr;
  nlohmann::ordered_json task;
};

// An earlier run's choice for an attempt.
struct RecordedChoice {
  std::string operation;
  std::vector<int64_t> parents;
};

struct Proposal {
  std::string name;
  Program program;
  std::string thought;
  double predicted = 0;  // score; 0: no prediction
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Only in a replay: then nothing is chosen at random.
  virtual std::optional<RecordedChoice> choice(int64_t /*attempt*/) const { return std::nullopt; }
  // Nothing: no more proposals. `invalid_argument` costs the attempt, any other error ends the run.
  virtual Result<std::optional<Proposal>> propose(const Request& request) = 0;
};

inline constexpr std::string_view kReplay = "replay:";

// "params", "params:random", "params:local", "params:evolution", "replay:FILE", or a program and its
// arguments, separated by spaces.
Result<std::unique_ptr<Proposer>> make_proposer(const std::string& name, double seconds);

std::unique_ptr<Proposer> executable_proposer(std::vector<std::string> words, double seconds);
// All values of a source's parameters, in the order of their lists; at most `most`.
std::vector<Program> all_values(const Program& program, int64_t most);
enum class Search { random, local, evolution };
std::unique_ptr<Proposer> params_proposer(Search search);
Result<std::unique_ptr<Proposer>> replay_proposer(const std::string& path);
// The lines of a replay: line i belongs to attempt i + 2, because the seed has no line.
Result<std::vector<nlohmann::ordered_json>> replay_lines(const std::string& path);

// The request for a proposer, docs/evolve/request.schema.json.
nlohmann::ordered_json request_json(const Request& request);
// Parses the answer and checks it against docs/evolve/proposal.schema.json. Without a source it
// uses the first parent's.
Result<Proposal> proposal_from(const nlohmann::ordered_json& json, const Request& request);

}  // namespace flashcore::evolve
