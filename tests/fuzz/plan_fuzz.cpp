// Plans of every kernel, including CUDA's if its headers are there, for arbitrary problems: for any
// sizes, a problem is refused with a message, or its plan's sizes fit. The sanitizer checks that
// none of them overflows.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/fuzz/all_plans.hpp"
#include "tests/fuzz/hostile_problem.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto draw = [&]() -> uint32_t {
    uint32_t value = 0;
    const size_t count = size < sizeof value ? size : sizeof value;
    if (count > 0) std::memcpy(&value, data, count);
    data += count;
    size -= count;
    return value;
  };
  const bool batch_invariant = draw() % 2 == 1;
  flashcore::Problem problem = flashcore::tests::hostile_problem(draw);
  std::string wrong = flashcore::tests::plan_everywhere(problem, batch_invariant);
  if (wrong.empty()) {
    const bool deterministic = draw() % 2 == 1;
    const flashcore::Gradients gradients = flashcore::tests::hostile_gradients(draw, problem);
    wrong = flashcore::tests::plan_everywhere(problem, gradients, batch_invariant, deterministic);
  }
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  (void)flashcore::dropout_keeps(draw(), draw(), 0.5F, static_cast<int32_t>(draw()),
                                 static_cast<int32_t>(draw()), static_cast<int32_t>(draw()),
                                 static_cast<int64_t>(draw()) - INT32_MAX);
  return 0;
}
