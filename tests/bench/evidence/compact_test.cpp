// The compact form of evidence files: what is written is read as it was, and hostile files are refused.
#include "bench/evidence/compact.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/evidence/evidence.hpp"
#include "bench/evidence/evidence_file.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

TEST(Compact, WhatIsWrittenIsReadAsItWas) {
  const Json evidence = Json::parse(R"({
    "kind": "test", "empty": {}, "none": [],
    "rows": [{"name": "a", "gate": {"passed": true, "error": 1}, "times": {"a/b": {"us": 1}}},
             {"name": "@a", "gate": {"passed": true, "error": 1.0}, "times": {"a/c": {"us": 2}}},
             {"name": "#0", "gate": null, "times": {}}, [], ["#0", "#1"], null]})");
  const Json written = compact(evidence);
  EXPECT_EQ(written["forms"].size(), 2U) << written;
  EXPECT_EQ(written["rows"][0], Json::parse(R"(["#0", "a", 1, {"a/b": ["#1", 1]}])")) << written;
  const Result<Json> read = whole(written);
  ASSERT_TRUE(read.ok()) << read.status().message();
  // As text: members keep their order, and numbers their type.
  EXPECT_EQ(read->dump(), evidence.dump());
}

TEST(Compact, FilesOfTheRepositoryAreAsTheyWouldBeWritten) {
  for (const char* const name : {"bench", "tuning-suites", "ladder", "verify-all-kernels"}) {
    const std::string path = std::string(FLASHCORE_ROOT) + "/docs/evidence/" + name + ".json";
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Result<Json> evidence = read_evidence(path);
    ASSERT_TRUE(evidence.ok()) << evidence.status().message();
    EXPECT_TRUE(Json::parse(evidence_text(*evidence)) == Json::parse(text)) << name;
  }
}

TEST(Compact, HostileFilesAreRefused) {
  const struct {
    const char* document;
    const char* error;
  } cases[] = {
      {R"({"rows": [["#0", 1]]})", R"('["#0",1]' is no row)"},
      {R"({"rows": [["#0"]], "forms": [["#0", "a"]]})", "is no row"},
      {R"({"rows": [["#0", 1, 2]], "forms": [["#0", "a"]]})", "is no row"},
      {R"({"rows": [["#0", 1, 2]], "forms": [["#0", "a", "a/b"]]})", "is no row"},
      {R"({"rows": ["@0"], "texts": {"@0": 1}})", R"('"@0"' is no text)"},
      {R"({"rows": ["@0"], "texts": 1})", "is no text"},
      {R"({"forms": 1})", "'1' is no form"},
      {R"({"rows": [["#0", 1]], "forms": [["#0", 1]]})", "is no row"},
      {R"({"rows": [["#0", 1]], "forms": [["#0", "a/b/c/d/e/f/g/h/i"]]})", "is no row"},
  };
  for (const auto& [document, error] : cases) {
    const Result<Json> read = whole(Json::parse(document));
    ASSERT_FALSE(read.ok()) << document;
    EXPECT_THAT(read.status().message(), HasSubstr(error));
  }
}

TEST(Compact, ASmallFileMakesNoEndlessDocument) {
  const std::string text(size_t{1} << 20, 'x');
  const Json texts = {{"rows", std::vector<Json>(1000, "@0")}, {"texts", {{"@0", text}}}};
  const Json form = Json::array({"#0", Json::array({"name", text})});
  const Json forms = {{"rows", std::vector<Json>(1000, Json::array({"#0"}))},
                      {"forms", Json::array({form})}};
  for (const Json& document : {texts, forms}) {
    const Result<Json> read = whole(document);
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.status().message(), HasSubstr("make more than"));
  }
}

}  // namespace
}  // namespace flashcore::bench
