// The protocol of proposers, version 1: one object in, one out.
#include <algorithm>
#include <utility>

#include "evolve/propose/proposer.hpp"
#include "evolve/task/task.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostInsights = 8;

Json program_json(const Attempt& one) {
  return {{"id", one.id},
          {"name", one.origin.name},
          {"source", one.program.source},
          {"parameters", values_json(one.program.values)},
          {"score", one.score}};
}

// The result in the words of the stages, and the proposer's thought.
Json insight_json(const Attempt& one) {
  Json json = {{"id", one.id},         {"name", one.origin.name}, {"outcome", one.outcome},
               {"stage", one.stage},   {"reason", one.reason},    {"thought", one.origin.thought},
               {"measured", one.score}};
  if (one.origin.predicted > 0) json["predicted"] = one.origin.predicted;
  if (!one.program.values.empty()) json["parameters"] = values_json(one.program.values);
  return json;
}

}  // namespace

Json request_json(const Request& request) {
  const bool has_insights = request.preset != "free";
  Json json = {{"protocol", "flashcore-evolve"}, {"version", 1},
               {"attempt", request.attempt},     {"random", request.random >> 11},
               {"preset", request.preset},       {"operator", request.operation},
               {"task", request.task},           {"parents", Json::array()}};
  for (const Attempt* const parent : request.parents) {
    Json& added = json["parents"].emplace_back(program_json(*parent));
    if (has_insights) added["insights"] = parent->evidence;
  }
  if (request.preset == "full") {
    json["history"] = Json::array();
    for (const Attempt* const elite : request.elites) {
      json["history"].push_back(program_json(*elite));
    }
  }
  if (!has_insights || request.attempts == nullptr) return json;
  json["insights"] = Json::array();
  const std::vector<Attempt>& all = *request.attempts;
  for (size_t i = all.size() - std::min(all.size(), kMostInsights); i < all.size(); ++i) {
    if (all[i].done) json["insights"].push_back(insight_json(all[i]));
  }
  return json;
}

Result<Proposal> proposal_from(const Json& json, const Request& request) {
  FLASHCORE_RETURN_IF_ERROR(check_proposal(json));
  const bool has_source = json.contains("source");
  if (!has_source && !json.contains("parameters")) {
    return invalid("proposal: has neither a source nor parameters, wanted one of them");
  }
  const Values values = json.contains("parameters") ? values_from(json["parameters"]) : Values();
  Result<Program> program = make_program(
      has_source ? json["source"].get<std::string>() : request.parents.front()->program.source,
      values);
  if (!program.ok()) return program.status();
  Proposal proposal{json["name"], std::move(*program), json.value("thought", ""), 0};
  if (json.contains("predicted")) proposal.predicted = json["predicted"].value("score", 0.0);
  return proposal;
}

}  // namespace flashcore::evolve
