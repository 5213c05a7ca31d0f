// Tensor files, well and badly formed: what the readers are tested with and fuzzing begins from.
#pragma once

#include <string>
#include <vector>

namespace flashcore::tests {

struct FileCase {
  std::string name;
  std::string bytes;
  std::string error;  // a part of the sentence; empty: the file is good
};

std::vector<FileCase> safetensors_cases();
std::vector<FileCase> npy_cases();

// A .safetensors file of this header (its length in front) and data.
std::string safetensors_file(const std::string& header, const std::string& data);

// A .npy file, version 1, of this dictionary and data.
std::string npy_file(const std::string& dictionary, const std::string& data);

}  // namespace flashcore::tests
