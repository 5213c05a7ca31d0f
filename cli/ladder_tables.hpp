// The ladder's evidence as tables for people.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/session.hpp"

namespace flashcore::cli {

void print_ladder_gates(const nlohmann::ordered_json& evidence, Session& session);
void print_ladder_times(const nlohmann::ordered_json& evidence, Session& session);

}  // namespace flashcore::cli
