#include "bench/evidence/evidence_file.hpp"

#include <optional>
#include <set>
#include <utility>

#include "bench/evidence/compact.hpp"
#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_schema.hpp"
#include "bench/evidence/rates.hpp"
#include "bench/evidence/schema.hpp"
#include "bench/io/atomic_file.hpp"
#include "bench/io/byte_source.hpp"
#include "bench/text/terminal.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLargestFile = uint64_t{64} << 20;
constexpr int kMostLevels = 32;

// The members of a case in a file, by their names.
constexpr std::pair<const char*, bool Case::*> kFlags[] = {{"causal", &Case::causal},
                                                           {"top_left", &Case::top_left},
                                                           {"mask", &Case::mask},
                                                           {"alibi", &Case::alibi},
                                                           {"sinks", &Case::sinks},
                                                           {"packed", &Case::packed},
                                                           {"v_transposed", &Case::v_transposed},
                                                           {"latent", &Case::latent},
                                                           {"tree", &Case::tree},
                                                           {"ragged", &Case::ragged},
                                                           {"rotated", &Case::rotated},
                                                           {"largest", &Case::largest}};
constexpr std::pair<const char*, int64_t Case::*> kExtents[] = {
    {"batch", &Case::batch},
    {"heads_q", &Case::heads_q},
    {"heads_kv", &Case::heads_kv},
    {"seqlen_q", &Case::seqlen_q},
    {"seqlen_kv", &Case::seqlen_kv},
    {"head_dim", &Case::head_dim},
    {"head_dim_v", &Case::head_dim_v},
    {"max_seqlen_q", &Case::max_seqlen_q},
    {"max_seqlen_kv", &Case::max_seqlen_kv},
    {"page_size", &Case::page_size}};
constexpr std::pair<const char*, std::optional<DType> Case::*> kDTypes[] = {
    {"bias", &Case::bias},
    {"kv_dtype", &Case::kv_dtype},
    {"v_dtype", &Case::v_dtype},
    {"o_dtype", &Case::o_dtype}};

// The members of a case that are in none of these lists, or have few types.
constexpr const char* kCasesSchema = R"({
  "type": "object",
  "required": ["schema", "version", "cases"],
  "properties": {
    "schema": {"const": "flashcore-cases"},
    "version": {"const": 1},
    "cases": {"type": "array", "minItems": 1, "maxItems": 10000, "items": {
      "type": "object",
      "required": ["name", "dtype", "batch", "heads_q", "seqlen_q", "head_dim"],
      "properties": {
        "name": {"type": "string", "maxLength": 200},
        "suite": {"type": "string", "maxLength": 200},
        "dtype": {"enum": ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"]},
        "softcap": {"type": "number", "minimum": 0},
        "window": {"type": "array", "maxItems": 2, "items": {"$ref": "reach"}},
        "bias": {"enum": ["f32", "f16", "bf16"]},
        "dropout": {"type": "number", "minimum": 0, "maximum": 1},
        "kv_dtype": {"enum": ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"]},
        "v_dtype": {"enum": ["f8e4m3", "f8e5m2"]},
        "o_dtype": {"enum": ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"]},
        "backward": {"type": "boolean"}
      }
    }}
  }
})";
constexpr const char* kCasesDefinitions =
    R"({"extent": {"type": "integer", "minimum": 1, "maximum": 2147483647},
        "reach": {"type": "integer", "minimum": -1, "maximum": 2147483647}})";

Json cases_schema() {
  Json schema = Json::parse(kCasesSchema);
  Json& properties = schema["properties"]["cases"]["items"]["properties"];
  for (const auto& [name, flag] : kFlags) properties[name] = {{"type", "boolean"}};
  for (const auto& [name, extent] : kExtents) properties[name] = {{"$ref", "extent"}};
  return schema;
}

Status with_name(const std::string& path, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), path + ": " + status.message()};
}

const Json& evidence_schema() {
  static const Json schema = Json::parse(kEvidenceSchema);
  return schema;
}

}  // namespace

Result<Json> read_json(const std::string& path) {
  const Result<std::string> text = io::read_text(path, kLargestFile);
  if (!text.ok()) return text.status();
  bool too_deep = false;
  // Nesting beyond the limit is dropped while parsing, so that no deep value is ever built.
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    too_deep = too_deep || depth > kMostLevels;
    return depth <= kMostLevels;
  };
  Json value = Json::parse(*text, shallow, false);
  if (too_deep) return invalid("{}: has more than {} levels, wanted fewer", path, kMostLevels);
  if (value.is_discarded()) return invalid("{}: is not JSON, or was cut off", path);
  return value;
}

Status check_evidence(const Json& evidence) {
  const Json& schema = evidence_schema();
  const Json& definitions = schema["definitions"];
  FLASHCORE_RETURN_IF_ERROR(check_schema(evidence, schema["common"], definitions));
  Json kind = schema["kinds"].at(evidence["kind"].get<std::string>());
  kind["properties"].update(schema["common"]["properties"]);
  return check_schema(evidence, kind, definitions);
}

Result<Json> read_evidence(const std::string& path) {
  Result<Json> document = read_json(path);
  if (!document.ok()) return document.status();
  Result<Json> evidence = whole(std::move(*document));
  FLASHCORE_RETURN_IF_ERROR(with_name(path, evidence.status()));
  FLASHCORE_RETURN_IF_ERROR(with_name(path, check_evidence(*evidence)));
  add_rates(*evidence);
  return evidence;
}

Result<std::vector<FileCase>> read_cases(const std::string& path) {
  const Result<Json> file = read_json(path);
  if (!file.ok()) return file.status();
  static const Json schema = cases_schema();
  static const Json definitions = Json::parse(kCasesDefinitions);
  FLASHCORE_RETURN_IF_ERROR(with_name(path, check_schema(*file, schema, definitions)));
  std::vector<FileCase> cases;
  std::set<std::string> names;
  for (const Json& item : (*file)["cases"]) {
    FileCase& added = cases.emplace_back();
    added.suite = printable(item.value("suite", "file"));
    added.backward = item.value("backward", false);
    Case& one = added.one;
    one.name = printable(item["name"].get<std::string>());
    if (!names.insert(one.name).second) {
      return invalid("{}: has two cases named '{}', wanted a name for each", path, one.name);
    }
    one.dtype = *dtype_from_string(item["dtype"].get<std::string>());
    for (const auto& [name, flag] : kFlags) one.*flag = item.value(name, false);
    for (const auto& [name, extent] : kExtents) one.*extent = item.value(name, one.*extent);
    one.heads_kv = item.value("heads_kv", one.heads_q);
    one.seqlen_kv = item.value("seqlen_kv", one.seqlen_q);
    for (const auto& [name, dtype] : kDTypes) {
      if (item.contains(name)) one.*dtype = dtype_from_string(item[name].get<std::string>());
    }
    one.softcap = item.value("softcap", 0.0f);
    one.dropout_p = item.value("dropout", 0.0f);
    const Json window = item.value("window", Json::array({-1, -1}));
    if (window.size() != 2) {
      return invalid("{}: '{}' has a window of {} numbers, wanted [left, right]", path, one.name,
                     window.size());
    }
    one.window_left = window[0];
    one.window_right = window[1];
  }
  return cases;
}

Status write_json(const std::string& path, const Json& value) {
  return io::write_text(path, value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status write_evidence(const std::string& path, const Json& evidence) {
  return io::write_text(path, evidence_text(evidence));
}

}  // namespace flashcore::bench
