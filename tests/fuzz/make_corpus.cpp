// Writes the seed corpora of the fuzz targets: DIRECTORY/safetensors_fuzz and DIRECTORY/npy_fuzz.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/bench/io/malformed_files.hpp"

namespace {

bool write_all(const std::filesystem::path& directory,
               const std::vector<flashcore::tests::FileCase>& cases) {
  std::filesystem::create_directories(directory);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::ofstream file(directory / ("seed-" + std::to_string(i)), std::ios::binary);
    file << cases[i].bytes;
    if (!file.flush()) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  const bool written =
      write_all(directory / "safetensors_fuzz", flashcore::tests::safetensors_cases()) &&
      write_all(directory / "npy_fuzz", flashcore::tests::npy_cases());
  return written ? 0 : 1;
}
