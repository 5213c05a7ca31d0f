// Attention over caches, append, and both in one step, with arbitrary tables and lengths.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/hostile_cache.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto draw = [&]() -> uint32_t {
    uint8_t byte = 0;
    if (size > 0) {
      byte = *data++;
      --size;
    }
    return byte;
  };
  const std::string wrong = flashcore::tests::run_hostile_cache(draw);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
