// A candidate's text: a source, and values of the parameters that it declares.
//
//   //@ param BLOCK_Q {32, 64, 128}      the first value is what it has where nothing is said
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
  Values values = {};  // of each parameter
};

// In the order of the source. Refuses a line that is not as above, and a name twice.
Result<std::vector<Parameter>> parameters_of(const std::string& source);

// With the first value of each parameter that `values` does not name. Refuses a name that the source
// does not declare, and a value that is not in its list.
Result<Program> make_program(std::string source, const Values& values);

// What is compiled: the values as #define lines, then the source.
std::string text_of(const Program& program);

// Of the text.
std::string hash_of(const Program& program);

std::string values_text(const Values& values);  // "BLOCK_Q=32 KEYS=8"

nlohmann::ordered_json values_json(const Values& values);
// Numbers are taken for text.
Values values_from(const nlohmann::ordered_json& object);

}  // namespace flashcore::evolve
