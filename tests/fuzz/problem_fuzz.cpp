// The C interface with arbitrary structs: for any contents, a call returns a status with a message,
// and an accepted run touches only the memory that its tensors describe.
//
// Half of the inputs are raw bytes of a struct, with any struct_size. The others change members of
// a small, valid problem, which passes validation often enough to run.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "flashcore/flashcore.h"
#include "tests/fuzz/hostile_c_problem.hpp"

namespace flashcore::tests {
namespace {

void fuzz_raw(Source& source) {
  const std::vector<size_t> sizes = {sizeof(flashcore_problem), offsetof(flashcore_problem, lse),
                                     offsetof(flashcore_problem, dropout_state),
                                     sizeof(flashcore_problem) + 64,
                                     sizeof(flashcore_plan_options)};
  const std::vector<uint64_t> problem = raw_struct(source, sizes);
  const bool with_options = source.draw<uint8_t>() % 2 == 1;
  std::vector<uint64_t> options = raw_struct(source, sizes);
  if (options.size() > 2) options[2] = 0;  // the kernel's name: a wild pointer is undetectable
  flashcore_plan* plan = nullptr;
  check_status(flashcore_plan_create(
      reinterpret_cast<const flashcore_problem*>(problem.data()),
      with_options ? reinterpret_cast<const flashcore_plan_options*>(options.data()) : nullptr,
      &plan));
  flashcore_plan_destroy(plan);
}

void run(const flashcore_plan* plan, flashcore_problem& problem, Source& source) {
  Memory<Problem> memory;
  flashcore_arguments arguments;
  if (!is_small(plan, problem) || !make_forward(problem, source, memory, arguments)) return;
  const Workspace workspace(plan);
  check_status(flashcore_plan_run(plan, &arguments, workspace.memory, workspace.bytes, nullptr));
}

void fuzz_changed(Source& source) {
  flashcore_problem problem = valid_problem(source);
  change_members(problem, source);
  flashcore_plan_options options;
  flashcore_plan_options_init(&options, sizeof options);
  options.threads = 1;
  if (source.draw<uint8_t>() % 2 == 1) options.kernel = "reference";
  flashcore_plan* plan = nullptr;
  const flashcore_status status = flashcore_plan_create(&problem, &options, &plan);
  check_status(status);
  require((status == FLASHCORE_OK) == (plan != nullptr));
  if (plan != nullptr) run(plan, problem, source);
  flashcore_plan_destroy(plan);
}

}  // namespace
}  // namespace flashcore::tests

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flashcore::tests::Source source(data, size);
  if (source.draw<uint8_t>() % 2 == 0) {
    flashcore::tests::fuzz_raw(source);
  } else {
    flashcore::tests::fuzz_changed(source);
  }
  return 0;
}
