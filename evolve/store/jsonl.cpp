#include "evolve/store/store.hpp"

namespace flashcore::evolve {

nlohmann::ordered_json attempt_json(const Attempt& one) {
  nlohmann::ordered_json json = {{"version", 1},
                                 {"id", one.id},
                                 {"name", one.origin.name},
                                 {"operator", one.origin.operation},
                                 {"parents", one.origin.parents},
                                 {"proposer", one.origin.proposer},
                                 {"thought", one.origin.thought}};
  if (one.origin.predicted > 0) json["predicted"] = {{"score", one.origin.predicted}};
  if (!one.hash.empty()) {
    json["hash"] = one.hash;
    json["source"] = one.program.source;
    json["parameters"] = values_json(one.program.values);
  }
  json["done"] = one.done;
  json["outcome"] = one.outcome;
  json["stage"] = one.stage;
  json["reason"] = one.reason;
  json["score"] = one.score;
  json["noise"] = one.noise;
  json["seconds"] = one.seconds;
  json["evidence"] = one.evidence;
  return json;
}

std::string jsonl(const std::vector<Attempt>& attempts) {
  std::string text;
  for (const Attempt& one : attempts) {
    text +=
        attempt_json(one).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    text += '\n';
  }
  return text;
}

}  // namespace flashcore::evolve
