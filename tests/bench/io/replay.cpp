// Runs a fuzz target without libFuzzer, with any compiler: over its seeds, and over mutations of
// each (flipped bits, cuts, repeats), the same in every run.
//   NAME_replay [MUTATIONS]
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "tests/bench/io/malformed_files.hpp"

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
  const int mutations = argc > 1 ? std::atoi(argv[1]) : 500;
  const auto seeds = flashcore::tests::FLASHCORE_SEEDS();
  flashcore::bench::Random random(1);
  for (const flashcore::tests::FileCase& seed : seeds) {
    run(seed.bytes);
    const std::string start = seed.bytes.substr(0, 4096);
    for (int n = 0; n < mutations; ++n) run(mutated(start, random));
  }
  std::printf("%zu seeds, %d mutations of each\n", seeds.size(), mutations);
  return 0;
}
