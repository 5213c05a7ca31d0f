// The data of a run: programs by their content, attempts, events and settings, in one SQLite file.
// Every change is one transaction, so that a killed run can resume where it was.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "evolve/store/database.hpp"
#include "evolve/task/program.hpp"

namespace flashcore::evolve {

// The origin of an attempt.
struct Origin {
  std::string operation = {};  // "seed", "initial", "mutation", "crossover", "insight"
  std::vector<int64_t> parents = {};
  std::string proposer = {};
  std::string name = {};
  std::string thought = {};
  double predicted = 0;  // score; 0 without a prediction
};

struct Attempt {
  int64_t id = 0;  // 1 is the seed
  Origin origin = {};
  std::string hash = {};  // empty without a program
  Program program = {};
  bool done = false;
  std::string outcome = {};
  std::string stage = {};
  std::string reason = {};
  double score = 0;
  double noise = 0;
  double seconds = 0;  // the run's time when the attempt ended
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
};

struct Ending {
  std::string outcome = {}, stage = {}, reason = {};
  double score = 0, noise = 0, seconds = 0;
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
};

class Store {
 public:
  static Result<Store> open(const std::string& path);

  // Settings of the run, by name; "" if not set.
  Result<std::string> setting(const std::string& name) const;
  Status set(const std::string& name, const std::string& value);

  // Adds an attempt with the next number. Without a program it is already finished.
  Result<int64_t> begin(const Origin& origin, const std::optional<Program>& program);
  Status end(int64_t id, const Ending& ending);

  Status note(const std::string& kind, const std::string& text);

  Result<std::vector<Attempt>> attempts() const;  // all, in order

 private:
  explicit Store(Database database) : database_(std::move(database)) {}
  Database database_;
};

// Attempts as lines of JSON. `replay` reads them back as proposals.
nlohmann::ordered_json attempt_json(const Attempt& attempt);
std::string jsonl(const std::vector<Attempt>& attempts);

}  // namespace flashcore::evolve
