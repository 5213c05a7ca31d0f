#include "evolve/task/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>

#include "bench/text/numbers.hpp"
#include "bench/text/terminal.hpp"
#include "evolve/task/sha256.hpp"
#include "problem/status.hpp"

namespace flashcore::evolve {
namespace {

std::string shown(const std::string& text) { return bench::printable(text.substr(0, 60)); }

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

Result<std::vector<Parameter>> parameters_of(const std::string& source) {
  static const std::regex kBegins("^//@\\s*param\\b");
  static const std::regex kWhole("^//@ *param +([A-Za-z_][A-Za-z0-9_]*) *\\{([^{}]*)\\}\\s*$");
  static const std::regex kValue("[A-Za-z0-9_.+-]+");
  std::vector<Parameter> found;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 1000 || !line.starts_with("//@")) continue;
    if (!std::regex_search(line, kBegins)) continue;
    std::smatch match;
    if (!std::regex_match(line, match, kWhole)) {
      return invalid("parameter: is '{}', wanted a line such as //@ param BLOCK_Q {{32, 64}}",
                     shown(line));
    }
    Parameter parameter{match[1], {}};
    for (const std::string& piece : bench::split(match[2], ',')) {
      const std::string value = trimmed(piece);
      if (!std::regex_match(value, kValue)) {
        return invalid("parameter {}: has the value '{}', wanted a number or a name",
                       shown(parameter.name), shown(value));
      }
      parameter.values.push_back(value);
    }
    if (parameter.values.empty()) {
      return invalid("parameter {}: has no values, wanted one or more", shown(parameter.name));
    }
    if (std::any_of(found.begin(), found.end(),
                    [&](const Parameter& other) { return other.name == parameter.name; })) {
      return invalid("parameter {}: is declared twice, wanted once", shown(parameter.name));
    }
    found.push_back(std::move(parameter));
  }
  return found;
}

Result<Program> make_program(std::string source, const Values& values) {
  const Result<std::vector<Parameter>> parameters = parameters_of(source);
  if (!parameters.ok()) return parameters.status();
  Program program{std::move(source), {}};
  for (const Parameter& parameter : *parameters) {
    program.values[parameter.name] = parameter.values.front();
  }
  for (const auto& [name, value] : values) {
    const auto declared =
        std::find_if(parameters->begin(), parameters->end(),
                     [&, &wanted = name](const Parameter& one) { return one.name == wanted; });
    if (declared == parameters->end()) {
      return invalid("parameters: has '{}', wanted one that the source declares", shown(name));
    }
    const auto& list = declared->values;
    if (std::find(list.begin(), list.end(), value) == list.end()) {
      return invalid("parameters.{}: is '{}', wanted a value of its list", name, shown(value));
    }
    program.values[name] = value;
  }
  return program;
}

std::string text_of(const Program& program) {
  if (program.values.empty()) return program.source;
  std::string text;
  for (const auto& [name, value] : program.values)
    text += fmt::format("#define {} {}\n", name, value);
  return text + "#line 1\n" + program.source;
}

std::string hash_of(const Program& program) { return sha256(text_of(program)); }

std::string values_text(const Values& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

nlohmann::ordered_json values_json(const Values& values) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

Values values_from(const nlohmann::ordered_json& object) {
  Values values;
  for (const auto& [name, value] : object.items()) {
    values[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return values;
}

}  // namespace flashcore::evolve
