// Replays the proposals of a file, one per line, in order. An exported run is such a file.
#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "evolve/propose/proposer.hpp"
#include "evolve/task/folder.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& line, const char* name) {
  const auto found = line.find(name);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

class Replay final : public Proposer {
 public:
  explicit Replay(std::vector<Json> lines) : lines_(std::move(lines)) {}

  std::optional<RecordedChoice> choice(int64_t attempt) const override {
    const Json* const line = line_of(attempt);
    if (line == nullptr || !line->contains("parents")) return std::nullopt;
    return RecordedChoice{text_of(*line, "operator"),
                          (*line)["parents"].get<std::vector<int64_t>>()};
  }

  Result<std::optional<Proposal>> propose(const Request& request) override {
    const Json* const line = line_of(request.attempt);
    if (line == nullptr) return std::optional<Proposal>();
    Json said = Json::object();  // without the export's other members
    for (const auto& [name, member] : line->items()) {
      if (!is_record(name)) said[name] = member;
    }
    Result<Proposal> proposal = proposal_from(said, request);
    if (!proposal.ok()) return proposal.status();
    return std::optional<Proposal>(std::move(*proposal));
  }

  // Members of an exported attempt that do not come from its proposer.
  static constexpr std::string_view kRecord[] = {
      "id",    "operator", "parents", "proposer", "hash",    "done",    "outcome",
      "stage", "reason",   "score",   "noise",    "seconds", "evidence"};
  static bool is_record(std::string_view name) {
    return std::find(std::begin(kRecord), std::end(kRecord), name) != std::end(kRecord);
  }

 private:
  // The line of an attempt: the first line belongs to attempt 2, after the seed.
  const Json* line_of(int64_t attempt) const {
    const auto next = static_cast<size_t>(attempt - 2);
    return next < lines_.size() ? &lines_[next] : nullptr;
  }

  std::vector<Json> lines_;
};

// Returns whether parents are attempts before this one.
bool are_parents(const Json& parents, size_t attempt) {
  return parents.is_array() && !parents.empty() && parents.size() <= 2 &&
         std::all_of(parents.begin(), parents.end(), [&](const Json& one) {
           return one.is_number_unsigned() && one > 0 && one < attempt;
         });
}

}  // namespace

Result<std::vector<Json>> replay_lines(const std::string& path) {
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
    // An export begins with the seed, and contains attempts without a program.
    if (text_of(json, "operator") == "seed") continue;
    if (json.contains("parents") && !are_parents(json["parents"], lines.size() + 2)) {
      return invalid("{}: line {} has other parents, wanted one or two earlier attempts", path,
                     number);
    }
    lines.push_back(std::move(json));
  }
  return lines;
}

Result<std::unique_ptr<Proposer>> replay_proposer(const std::string& path) {
  Result<std::vector<Json>> lines = replay_lines(path);
  if (!lines.ok()) return lines.status();
  return std::unique_ptr<Proposer>(std::make_unique<Replay>(std::move(*lines)));
}

}  // namespace flashcore::evolve
