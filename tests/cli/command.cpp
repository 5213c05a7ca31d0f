#include "tests/cli/command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>

#include "bench/io/byte_source.hpp"
#include "bench/io/safetensors.hpp"

namespace flashcore::tests {

Outcome flashcore_command(Words words, Words environment) {
  words.insert(words.begin(), FLASHCORE_COMMAND);
  return run_process(std::move(words), std::move(environment));
}

nlohmann::json document(Words words) {
  words.emplace_back("--json");
  const Outcome outcome = flashcore_command(std::move(words));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json parsed = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << outcome.out;
  return parsed;
}

void expect_refused(const Words& words, int exit_code, const std::string& sentence) {
  const Outcome outcome = flashcore_command(words);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::IsEmpty());
  EXPECT_THAT(outcome.err, ::testing::AllOf(::testing::StartsWith("flashcore: error: "),
                                            ::testing::HasSubstr(sentence)));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

Words small_with(const Words& more) {
  Words words = {"run", "--shape", "2,4,40,32", "--heads-kv", "2", "--device", "cpu"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::map<std::string, Stored> stored_in(const std::string& path) {
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
