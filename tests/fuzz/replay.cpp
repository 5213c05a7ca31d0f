// Runs a fuzz target without libFuzzer: over every file of a directory, and over mutations of each
// (flipped bits, cuts, repeats), the same in every run.
//   NAME_replay DIRECTORY [MUTATIONS]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "bench/random.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::string mutated(std::string bytes, flashcore::bench::Random& random) {
  for (int64_t edits = random.integer(1, 4); edits > 0; --edits) {
    const auto at = static_cast<size_t>(random.integer(0, static_cast<int64_t>(bytes.size())));
    const auto length = static_cast<size_t>(random.integer(1, 8));
    if (random.chance(0.2)) {
      bytes.erase(at, length);
    } else if (random.chance(0.2)) {
      bytes.insert(at, bytes.substr(at, length));
    } else if (random.chance(0.1)) {
      bytes.resize(at);
    } else if (at < bytes.size()) {
      bytes[at] = static_cast<char>(random.chance(0.5) ? bytes[at] ^ (1 << random.integer(0, 7))
                                                       : random.integer(0, 255));
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [MUTATIONS]\n", argv[0]);
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 500;
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.insert(entry.path());
  flashcore::bench::Random random(1);
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    run(bytes);
    const std::string seed = bytes.substr(0, 4096);
    for (int n = 0; n < mutations; ++n) run(mutated(seed, random));
  }
  std::printf("%zu files, %d mutations of each\n", files.size(), mutations);
  return files.empty() ? 1 : 0;
}
