// Proposes other values of a source's declared parameters; each program at most once.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "bench/tensors/random.hpp"
#include "evolve/propose/proposer.hpp"

namespace flashcore::evolve {
namespace {

constexpr int kTries = 200;  // random tries before an exhaustive search
constexpr int64_t kMostLooked = 100000;

const std::string& pick(const std::vector<std::string>& values, bench::Random& random) {
  return values[static_cast<size_t>(random.integer(0, std::ssize(values) - 1))];
}

// The next combination in the order of the lists; false after the last.
bool advance(const std::vector<Parameter>& parameters, Values& values) {
  for (const Parameter& one : parameters) {
    const auto at = std::find(one.values.begin(), one.values.end(), values[one.name]) + 1;
    values[one.name] = at == one.values.end() ? one.values.front() : *at;
    if (at != one.values.end()) return true;
  }
  return false;
}

class Params final : public Proposer {
 public:
  explicit Params(Search search) : search_(search) {}

  Result<std::optional<Proposal>> propose(const Request& request) override {
    const Program& base = request.parents.front()->program;
    const Result<std::vector<Parameter>> parameters = parameters_of(base.source);
    if (!parameters.ok()) return parameters.status();
    std::set<std::string> tried;
    for (const Attempt& one : *request.attempts) tried.insert(one.hash);
    const auto is_new = [&](const Values& values) {
      return !tried.contains(hash_of({base.source, values}));
    };
    bench::Random random(request.random);
    std::string how;
    for (int i = 0; i < kTries; ++i) {
      // Widens a neighbourhood that is exhausted.
      const Values values = draw(request, *parameters, i, random, how);
      if (is_new(values)) return proposal(request, base, values, how);
    }
    for (const Program& one : all_values(base, kMostLooked)) {
      if (is_new(one.values)) return proposal(request, base, one.values, "the next");
    }
    return std::optional<Proposal>();
  }

 private:
  static std::optional<Proposal> proposal(const Request& request, const Program& base,
                                          const Values& values, const std::string& how) {
    const Attempt& parent = *request.parents.front();
    std::string changed;
    for (const auto& [name, value] : values) {
      if (base.values.at(name) == value) continue;
      changed += fmt::format("{}{} {} to {}", changed.empty() ? "" : ", ", name,
                             base.values.at(name), value);
    }
    return Proposal{values_text(values), Program{base.source, values},
                    how + " of " + std::to_string(parent.id) + ": " + changed, 0};
  }

  Values draw(const Request& request, const std::vector<Parameter>& parameters, int tries,
              bench::Random& random, std::string& how) const {
    const bool crosses = search_ == Search::evolution && request.operation == "crossover" &&
                         request.parents.size() > 1 &&
                         request.parents[1]->program.source == request.parents[0]->program.source;
    const bool anything =
        search_ == Search::random || request.operation == "initial" || tries > kTries / 2;
    how = anything ? "random values" : crosses ? "a mixture" : "a change";
    Values values = request.parents.front()->program.values;
    if (anything) {
      for (const Parameter& one : parameters) values[one.name] = pick(one.values, random);
      return values;
    }
    if (crosses) {
      for (auto& [name, value] : values) {
        if (random.chance(0.5)) value = request.parents[1]->program.values.at(name);
      }
      if (tries == 0) return values;
    }
    // Changes one parameter, and more of them the longer nothing new is found.
    const int64_t count = search_ == Search::local ? 1 : random.integer(1, 2);
    for (int64_t i = 0; i < count + tries / 50; ++i) {
      const Parameter& one =
          parameters[static_cast<size_t>(random.integer(0, std::ssize(parameters) - 1))];
      values[one.name] = pick(one.values, random);
    }
    return values;
  }

  Search search_;
};

}  // namespace

std::vector<Program> all_values(const Program& program, int64_t most) {
  std::vector<Program> all;
  const Result<std::vector<Parameter>> parameters = parameters_of(program.source);
  if (!parameters.ok()) return all;
  Values values;
  for (const Parameter& one : *parameters) values[one.name] = one.values.front();
  do {
    all.push_back({program.source, values});
  } while (std::ssize(all) < most && advance(*parameters, values));
  return all;
}

std::unique_ptr<Proposer> params_proposer(Search search) {
  return std::make_unique<Params>(search);
}

}  // namespace flashcore::evolve
