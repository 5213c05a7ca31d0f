// Runs the fuzz targets of tensor files without libFuzzer, with any compiler: over their seeds, and
// over mutations of each (flipped bits, cuts, repeats), the same in every run.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "tests/bench/io/malformed_files.hpp"

// LLVMFuzzerTestOneInput of tests/fuzz, under the names from CMakeLists.txt.
extern "C" int fuzz_safetensors(const uint8_t* data, size_t size);
extern "C" int fuzz_npy(const uint8_t* data, size_t size);

namespace flashcore::tests {
namespace {

using FuzzTarget = int(const uint8_t*, size_t);

std::string mutated(std::string bytes, bench::Random& random) {
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

void replay(FuzzTarget& target, const std::vector<FileCase>& seeds) {
  ASSERT_FALSE(seeds.empty());
  const auto run = [&](const std::string& bytes) {
    EXPECT_EQ(target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), 0);
  };
  bench::Random random(1);
  for (const FileCase& seed : seeds) {
    run(seed.bytes);
    const std::string start = seed.bytes.substr(0, 4096);
    for (int n = 0; n < 500; ++n) run(mutated(start, random));
  }
}

TEST(Mutations, Safetensors) { replay(fuzz_safetensors, safetensors_cases()); }
TEST(Mutations, Npy) { replay(fuzz_npy, npy_cases()); }

}  // namespace
}  // namespace flashcore::tests
