// Valid and malformed tensor files: for tests of the readers, and as seeds for fuzzing.
#pragma once

#include <string>
#include <vector>

namespace flashcore::tests {

struct FileCase {
  std::string name;
  std::string bytes;
  std::string error;  // a part of the message; empty: a valid file
};

std::vector<FileCase> safetensors_cases();
std::vector<FileCase> npy_cases();

// Makes a .safetensors file from a header, preceded by its length, and data.
std::string safetensors_file(const std::string& header, const std::string& data);

// Makes a .npy file, version 1, from a dictionary and data.
std::string npy_file(const std::string& dictionary, const std::string& data);

}  // namespace flashcore::tests
