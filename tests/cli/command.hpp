// The built command from the outside, for its tests.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.hpp"

namespace flashcore::tests {

using Words = std::vector<std::string>;

Outcome flashcore_command(Words words, Words environment = {});

// Runs with --json on the CPU; expects success and returns the document.
nlohmann::json document(Words words);

// One sentence on stderr, nothing on stdout, and the exit code.
void expect_refused(const Words& words, int exit_code, const std::string& sentence);

// `run` with a small problem, and more options.
Words small_with(const Words& more);

// The elements of every tensor of a .safetensors file, and its shape.
struct Stored {
  std::string type;
  std::vector<int64_t> shape;
  std::string bytes;
  friend bool operator==(const Stored&, const Stored&) = default;
};

std::map<std::string, Stored> stored_in(const std::string& path);

}  // namespace flashcore::tests
