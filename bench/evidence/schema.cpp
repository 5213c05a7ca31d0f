#include "bench/evidence/schema.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/text/terminal.hpp"
#include "problem/nearest_name.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

// A value in an error message: a hostile file controls its length and contents.
std::string shown(const Json& value) {
  constexpr size_t kMost = 60;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  std::string text = printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

bool is_of(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == "null" && value.is_null();
}

class Checker {
 public:
  explicit Checker(const Json& definitions) : definitions_(definitions) {}

  Status check(const Json& value, const Json& schema, const std::string& place) const {
    if (schema.contains("$ref")) {
      return check(value, definitions_.at(schema["$ref"].get<std::string>()), place);
    }
    FLASHCORE_RETURN_IF_ERROR(check_type(value, schema, place));
    FLASHCORE_RETURN_IF_ERROR(check_scalar(value, schema, place));
    if (value.is_object()) return check_object(value, schema, place);
    return value.is_array() ? check_array(value, schema, place) : Status();
  }

 private:
  static std::string begin(const std::string& place) { return place.empty() ? "" : place + ": "; }

  static Status check_type(const Json& value, const Json& schema, const std::string& place) {
    if (!schema.contains("type")) return {};
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    std::string wanted;
    for (const Json& type : types) {
      if (is_of(value, type)) return {};
      wanted += (wanted.empty() ? "" : " or ") + type.get<std::string>();
    }
    return invalid("{}is {}, wanted {}", begin(place), shown(value), wanted);
  }

  static Status check_scalar(const Json& value, const Json& schema, const std::string& place) {
    if (schema.contains("const") && value != schema["const"]) {
      return invalid("{}is {}, wanted {}", begin(place), shown(value), shown(schema["const"]));
    }
    if (schema.contains("enum")) {
      std::string wanted;
      bool known = false;
      for (const Json& one : schema["enum"]) {
        known = known || value == one;
        wanted += (wanted.empty() ? "" : ", ") + shown(one);
      }
      if (!known) return invalid("{}is {}, wanted one of {}", begin(place), shown(value), wanted);
    }
    if (value.is_number()) {
      const double number = value.get<double>();
      if (schema.contains("minimum") && !(number >= schema["minimum"].get<double>())) {
        return invalid("{}is {}, wanted {} or more", begin(place), shown(value),
                       shown(schema["minimum"]));
      }
      if (schema.contains("maximum") && !(number <= schema["maximum"].get<double>())) {
        return invalid("{}is {}, wanted {} or less", begin(place), shown(value),
                       shown(schema["maximum"]));
      }
      if (schema.contains("exclusiveMinimum") &&
          !(number > schema["exclusiveMinimum"].get<double>())) {
        return invalid("{}is {}, wanted more than {}", begin(place), shown(value),
                       shown(schema["exclusiveMinimum"]));
      }
    }
    if (value.is_string() && schema.contains("maxLength")) {
      const size_t size = value.get_ref<const std::string&>().size();
      if (size > schema["maxLength"].get<size_t>()) {
        return invalid("{}has {} bytes, wanted at most {}", begin(place), size,
                       shown(schema["maxLength"]));
      }
    }
    return {};
  }

  Status check_object(const Json& value, const Json& schema, const std::string& place) const {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name)) {
        return invalid("{}has no '{}', wanted one", begin(place), name.get<std::string>());
      }
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [name, member] : value.items()) {
      const auto known = properties.find(name);
      if (known == properties.end() && !schema.contains("additionalProperties")) {
        if (properties.empty()) continue;
        return unknown_key(name, properties, place);
      }
      const Json& rule = known == properties.end() ? schema["additionalProperties"] : *known;
      const std::string safe = printable(name).substr(0, 80);
      FLASHCORE_RETURN_IF_ERROR(
          check(member, rule, place.empty() ? safe : fmt::format("{}.{}", place, safe)));
    }
    return {};
  }

  static Status unknown_key(const std::string& name, const Json& properties,
                            const std::string& place) {
    std::vector<std::string_view> known;
    for (const auto& property : properties.items()) known.emplace_back(property.key());
    return invalid("{}has '{}', wanted a key that is known; the nearest is '{}'", begin(place),
                   printable(name).substr(0, 80), nearest_name(name, known));
  }

  Status check_array(const Json& value, const Json& schema, const std::string& place) const {
    if (value.size() < schema.value("minItems", size_t{0})) {
      return invalid("{}has {} items, wanted at least {}", begin(place), value.size(),
                     shown(schema["minItems"]));
    }
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<size_t>()) {
      return invalid("{}has {} items, wanted at most {}", begin(place), value.size(),
                     shown(schema["maxItems"]));
    }
    if (!schema.contains("items")) return {};
    for (size_t i = 0; i < value.size(); ++i) {
      FLASHCORE_RETURN_IF_ERROR(check(value[i], schema["items"], fmt::format("{}[{}]", place, i)));
    }
    return {};
  }

  const Json& definitions_;
};

}  // namespace

Status check_schema(const Json& value, const Json& schema, const Json& definitions) {
  return Checker(definitions).check(value, schema, "");
}

void rename_members(Json& value, const Json& names) {
  if (value.is_array()) {
    for (Json& item : value) rename_members(item, names);
  } else if (value.is_object()) {
    Json renamed = Json::object();
    for (auto& [name, member] : value.items()) {
      rename_members(member, names);
      renamed.emplace(names.value(name, name), std::move(member));
    }
    value = std::move(renamed);
  }
}

}  // namespace flashcore::bench
