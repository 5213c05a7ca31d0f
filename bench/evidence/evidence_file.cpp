#include "bench/evidence/evidence_file.hpp"

#include <memory>
#include <set>
#include <span>
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
        "batch": {"$ref": "extent"},
        "heads_q": {"$ref": "extent"},
        "heads_kv": {"$ref": "extent"},
        "seqlen_q": {"$ref": "extent"},
        "seqlen_kv": {"$ref": "extent"},
        "head_dim": {"$ref": "extent"},
        "head_dim_v": {"$ref": "extent"},
        "causal": {"type": "boolean"},
        "top_left": {"type": "boolean"},
        "sinks": {"type": "boolean"},
        "packed": {"type": "boolean"},
        "max_seqlen_q": {"$ref": "extent"},
        "max_seqlen_kv": {"$ref": "extent"},
        "backward": {"type": "boolean"},
        "softcap": {"type": "number", "minimum": 0},
        "window": {"type": "array", "maxItems": 2, "items": {"$ref": "reach"}},
        "bias": {"enum": ["f32", "f16", "bf16"]},
        "mask": {"type": "boolean"},
        "alibi": {"type": "boolean"},
        "dropout": {"type": "number", "minimum": 0, "maximum": 1},
        "page_size": {"$ref": "extent"},
        "kv_dtype": {"enum": ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"]},
        "v_dtype": {"enum": ["f8e4m3", "f8e5m2"]},
        "v_transposed": {"type": "boolean"},
        "ragged": {"type": "boolean"},
        "rotated": {"type": "boolean"},
        "tree": {"type": "boolean"},
        "latent": {"type": "boolean"},
        "o_dtype": {"enum": ["f32", "f16", "bf16", "f8e4m3", "f8e5m2"]},
        "largest": {"type": "boolean"}
      }
    }}
  }
})";
constexpr const char* kCasesDefinitions =
    R"({"extent": {"type": "integer", "minimum": 1, "maximum": 2147483647},
        "reach": {"type": "integer", "minimum": -1, "maximum": 2147483647}})";

Status with_name(const std::string& path, const Status& status) {
  if (status.ok()) return status;
  return {status.code(), path + ": " + status.message()};
}

Status write_text(const std::string& path, const std::string& text) {
  Result<io::AtomicFile> file = io::AtomicFile::create(path);
  if (!file.ok()) return file.status();
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

const Json& evidence_schema() {
  static const Json schema = Json::parse(kEvidenceSchema);
  return schema;
}

}  // namespace

Result<Json> read_json(const std::string& path) {
  const Result<std::unique_ptr<io::ByteSource>> file = io::open_file(path);
  if (!file.ok()) return file.status();
  const uint64_t size = (*file)->size();
  if (size > kLargestFile) {
    return invalid("{}: has {} bytes, wanted at most {}", path, size, kLargestFile);
  }
  std::string text(static_cast<size_t>(size), '\0');
  FLASHCORE_RETURN_IF_ERROR((*file)->read(0, std::as_writable_bytes(std::span(text))));
  bool too_deep = false;
  // Nesting beyond the limit is dropped while parsing, so that no deep value is ever built.
  const auto shallow = [&](int depth, Json::parse_event_t, const Json&) {
    too_deep = too_deep || depth > kMostLevels;
    return depth <= kMostLevels;
  };
  Json value = Json::parse(text, shallow, false);
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
  static const Json schema = Json::parse(kCasesSchema);
  static const Json definitions = Json::parse(kCasesDefinitions);
  FLASHCORE_RETURN_IF_ERROR(with_name(path, check_schema(*file, schema, definitions)));
  std::vector<FileCase> cases;
  std::set<std::string> names;
  for (const Json& item : (*file)["cases"]) {
    FileCase& added = cases.emplace_back();
    added.suite = printable(item.value("suite", "file"));
    Case& one = added.one;
    one.name = printable(item["name"].get<std::string>());
    if (!names.insert(one.name).second) {
      return invalid("{}: has two cases named '{}', wanted a name for each", path, one.name);
    }
    one.dtype = *dtype_from_string(item["dtype"].get<std::string>());
    one.batch = item["batch"];
    one.heads_q = item["heads_q"];
    one.heads_kv = item.value("heads_kv", one.heads_q);
    one.seqlen_q = item["seqlen_q"];
    one.seqlen_kv = item.value("seqlen_kv", one.seqlen_q);
    one.head_dim = item["head_dim"];
    one.causal = item.value("causal", false);
    one.head_dim_v = item.value("head_dim_v", int64_t{0});
    one.top_left = item.value("top_left", false);
    one.sinks = item.value("sinks", false);
    one.packed = item.value("packed", false);
    one.max_seqlen_q = item.value("max_seqlen_q", int64_t{0});
    one.max_seqlen_kv = item.value("max_seqlen_kv", int64_t{0});
    added.backward = item.value("backward", false);
    one.softcap = item.value("softcap", 0.0f);
    if (const Json window = item.value("window", Json::array({-1, -1})); window.size() == 2) {
      one.window_left = window[0];
      one.window_right = window[1];
    } else {
      return invalid("{}: '{}' has a window of {} numbers, wanted [left, right]", path, one.name,
                     window.size());
    }
    if (item.contains("bias")) one.bias = dtype_from_string(item["bias"].get<std::string>());
    one.mask = item.value("mask", false);
    one.alibi = item.value("alibi", false);
    one.dropout_p = item.value("dropout", 0.0f);
    one.page_size = item.value("page_size", int64_t{0});
    if (item.contains("kv_dtype")) {
      one.kv_dtype = dtype_from_string(item["kv_dtype"].get<std::string>());
    }
    if (item.contains("v_dtype")) {
      one.v_dtype = dtype_from_string(item["v_dtype"].get<std::string>());
    }
    one.v_transposed = item.value("v_transposed", false);
    one.ragged = item.value("ragged", false);
    one.rotated = item.value("rotated", false);
    one.tree = item.value("tree", false);
    one.latent = item.value("latent", false);
    if (item.contains("o_dtype")) {
      one.o_dtype = dtype_from_string(item["o_dtype"].get<std::string>());
    }
    one.largest = item.value("largest", false);
  }
  return cases;
}

Status write_json(const std::string& path, const Json& value) {
  return write_text(path, value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status write_evidence(const std::string& path, const Json& evidence) {
  return write_text(path, evidence_text(evidence));
}

}  // namespace flashcore::bench
