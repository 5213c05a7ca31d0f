// A candidate's text: a source, and values for its declared parameters.
//
//   //@ param BLOCK_Q {32, 64, 128}      the first value is the default
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore::evolve {

struct Parameter {
  std::string name;
  std::vector<std::string> values;
};

using Values = std::map<std::string, std::string>;

struct Program {
  std::string source = {};
  Values values = {};  // one per parameter
};

// In source order. Refuses malformed lines and repeated names.
Result<std::vector<Parameter>> parameters_of(const std::string& source);

// Parameters that `values` does not name get their first value. Refuses a name that the source does
// not declare, and a value that is not in its list.
Result<Program> make_program(std::string source, const Values& values);

// The compiled text: the values as #define lines, then the source.
std::string text_of(const Program& program);

// The hash of the compiled text.
std::string hash_of(const Program& program);

std::string values_text(const Values& values);  // "BLOCK_Q=32 KEYS=8"

nlohmann::ordered_json values_json(const Values& values);
// Numbers are converted to text.
Values values_from(const nlohmann::ordered_json& object);

}  // namespace flashcore::evolve
