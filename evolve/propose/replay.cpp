// The proposals of a file, one a line, in their order. The export of a run is such a file.
#include <sstream>
#include <utility>

#include "evolve/propose/proposer.hpp"
#include "evolve/task/folder.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

class Replay final : public Proposer {
 public:
  explicit Replay(std::vector<Json> lines) : lines_(std::move(lines)) {}

  // As many lines are done as there were attempts after the seed.
  Result<std::optional<Proposal>> propose(const Request& request) override {
    const auto next = static_cast<size_t>(request.attempt - 2);
    if (next >= lines_.size()) return std::optional<Proposal>();
    Result<Proposal> proposal = proposal_from(lines_[next], request);
    if (!proposal.ok()) return proposal.status();
    return std::optional<Proposal>(std::move(*proposal));
  }

 private:
  std::vector<Json> lines_;
};

}  // namespace

Result<std::unique_ptr<Proposer>> replay_proposer(const std::string& path) {
  const Result<std::string> text = read_text(path);
  if (!text.ok()) return text.status();
  std::vector<Json> lines;
  std::istringstream all(*text);
  int number = 0;
  for (std::string line; std::getline(all, line);) {
    ++number;
    if (line.empty()) continue;
    Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) return invalid("{}: line {} is not a JSON object", path, number);
    // An export begins with the seed, and has attempts that brought no program.
    if (json.value("operator", "") == "seed") continue;
    lines.push_back(std::move(json));
  }
  return std::unique_ptr<Proposer>(std::make_unique<Replay>(std::move(lines)));
}

}  // namespace flashcore::evolve
