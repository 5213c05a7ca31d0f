// The built command from the outside, for the tests of it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/io/byte_source.hpp"
#include "bench/io/safetensors.hpp"
#include "tests/cli/process.hpp"

namespace flashcore::tests {

using Words = std::vector<std::string>;

inline Outcome flashcore_command(Words words, Words environment = {}) {
  words.insert(words.begin(), FLASHCORE_COMMAND);
  return run_process(std::move(words), std::move(environment));
}

// Runs with --json on the CPU; expects it to end well and returns the document.
inline nlohmann::json document(Words words) {
  words.emplace_back("--json");
  const Outcome outcome = flashcore_command(std::move(words));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json parsed = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << outcome.out;
  return parsed;
}

// One sentence on stderr, nothing on stdout, and the exit code.
inline void expect_refused(const Words& words, int exit_code, const std::string& sentence) {
  const Outcome outcome = flashcore_command(words);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::IsEmpty());
  EXPECT_THAT(outcome.err, ::testing::AllOf(::testing::StartsWith("flashcore: error: "),
                                            ::testing::HasSubstr(sentence)));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

inline const Words kSmall = {"run", "--shape", "2,4,40,32", "--heads-kv", "2", "--device", "cpu"};

inline Words small_with(Words more) {
  Words words = kSmall;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The elements of every tensor of a .safetensors file, and its shape.
struct Stored {
  std::string type;
  std::vector<int64_t> shape;
  std::string bytes;
  friend bool operator==(const Stored&, const Stored&) = default;
};

inline std::map<std::string, Stored> stored_in(const std::string& path) {
  std::map<std::string, Stored> out;
  const auto file = io::open_file(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  const auto tensors = io::list_safetensors(**file);
  EXPECT_TRUE(tensors.ok()) << tensors.status().message();
  for (const io::TensorInfo& info : *tensors) {
    Stored& stored = out[info.name];
    stored = {info.type_name, info.shape, std::string(info.bytes, '\0')};
    const Status status =
        (*file)->read(info.offset, std::as_writable_bytes(std::span(stored.bytes)));
    EXPECT_TRUE(status.ok());
  }
  return out;
}

}  // namespace flashcore::tests
