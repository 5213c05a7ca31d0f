// Loads and closes the shared library, as a program does.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "flashcore/flashcore.h"

namespace flashcore {
namespace {

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// The library's threads sleep in its code between runs: closing it must not unload that code.
TEST(SharedLibrary, StaysWhenItIsClosed) {
  void* const library = dlopen(FLASHCORE_SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  flashcore_problem problem;
  ASSERT_EQ(find<decltype(flashcore_problem_init)>(library, "flashcore_problem_init")(
                &problem, sizeof problem),
            FLASHCORE_OK);
  const int64_t shape[] = {1, 16, 64, 64};
  find<decltype(flashcore_tensor_contiguous)>(library, "flashcore_tensor_contiguous")(
      &problem.q, FLASHCORE_F32, 4, shape);
  problem.k = problem.v = problem.o = problem.q;
  flashcore_plan_options options;
  find<decltype(flashcore_plan_options_init)>(library, "flashcore_plan_options_init")(
      &options, sizeof options);
  options.kernel = "reference";  // needs no workspace
  options.threads = 4;
  flashcore_plan* plan = nullptr;
  ASSERT_EQ(find<decltype(flashcore_plan_create)>(library, "flashcore_plan_create")(
                &problem, &options, &plan),
            FLASHCORE_OK);
  std::vector<float> in(16 * 64 * 64, 0.5F), out(in.size());
  flashcore_arguments arguments;
  find<decltype(flashcore_arguments_init)>(library, "flashcore_arguments_init")(&arguments,
                                                                                sizeof arguments);
  arguments.q = arguments.k = arguments.v = in.data();
  arguments.o = out.data();
  ASSERT_EQ(find<decltype(flashcore_plan_run)>(library, "flashcore_plan_run")(plan, &arguments,
                                                                              nullptr, 0, nullptr),
            FLASHCORE_OK);
  find<decltype(flashcore_plan_destroy)>(library, "flashcore_plan_destroy")(plan);
  ASSERT_EQ(dlclose(library), 0);
  void* const still = dlopen(FLASHCORE_SHARED_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(still, nullptr) << "it was unloaded under its threads";
}

}  // namespace
}  // namespace flashcore
