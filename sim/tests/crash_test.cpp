// A kernel that ends the process: its thread is reported, and the findings so far.
#include <cuda_runtime.h>

#include <string>

#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

constexpr LaunchOptions kOneWarp{.grid = {1}, .block = {32}, .shared_bytes = 4096};

void crash(bool with_a_finding) {
  run(kOneWarp, {}, [with_a_finding] {
    if (threadIdx.x != 5) return;
    if (with_a_finding) load(*shared_array<int>());
    __builtin_trap();
  });
}

TEST(Crash, NamesTheThread) {
  EXPECT_DEATH(crash(false),
               "simulator: signal 4 .* in thread 5 of block 0; nothing was found before");
}

TEST(Crash, SaysWhatWasFoundBefore) {
  EXPECT_DEATH(crash(true),
               "in thread 5 of block 0; found before:.read of unwritten shared memory: .*thread 5");
}

}  // namespace
}  // namespace flashcore::sim
