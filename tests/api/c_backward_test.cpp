// The backward pass through the C interface equals the C++ interface's; errors that only C
// allows are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "tests/api/c_problem.hpp"

namespace flashcore::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

flashcore_gradients small_gradients(const flashcore_problem& problem) {
  flashcore_gradients gradients;
  EXPECT_EQ(flashcore_gradients_init(&gradients, sizeof gradients), FLASHCORE_OK);
  gradients.d_o = problem.o;
  gradients.dq = problem.q;
  gradients.dk = problem.k;
  gradients.dv = problem.v;
  return gradients;
}

struct CBackward : ::testing::Test {
  flashcore_problem problem = small_problem();
  flashcore_gradients gradients = small_gradients(problem);
  SmallData data;
  std::vector<float> d_o = data.q, dq, dk, dv;
  flashcore_arguments forward = data.arguments();
  flashcore_backward_arguments arguments = {};
  flashcore_plan* plan = nullptr;

  CBackward() : dq(data.q.size()), dk(data.k.size()), dv(data.v.size()) {
    flashcore_plan* first = nullptr;
    EXPECT_EQ(flashcore_plan_create(&problem, nullptr, &first), FLASHCORE_OK);
    EXPECT_EQ(flashcore_plan_run(first, &forward, nullptr, 0, nullptr), FLASHCORE_OK);
    flashcore_plan_destroy(first);
    EXPECT_EQ(flashcore_backward_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
    arguments.forward = &forward;
    arguments.d_o = d_o.data();
    arguments.dq = dq.data();
    arguments.dk = dk.data();
    arguments.dv = dv.data();
    EXPECT_EQ(flashcore_backward_plan_create(&problem, &gradients, nullptr, &plan), FLASHCORE_OK)
        << flashcore_last_error();
  }
  ~CBackward() override { flashcore_plan_destroy(plan); }
  CBackward(const CBackward&) = delete;
  CBackward& operator=(const CBackward&) = delete;
};

TEST_F(CBackward, GivesTheGradientsOfTheCppInterface) {
  ASSERT_EQ(flashcore_plan_run_backward(plan, &arguments, nullptr, 0, nullptr), FLASHCORE_OK)
      << flashcore_last_error();
  const Problem same = small_cpp_problem();
  Gradients wanted;
  wanted.d_o = wanted.dq = same.q;
  wanted.dk = wanted.dv = same.k;
  const Result<Plan> cpp = make_backward_plan(same, wanted);
  ASSERT_TRUE(cpp.ok());
  EXPECT_EQ(cpp->kernel(), flashcore_plan_kernel(plan));
  EXPECT_EQ(cpp->workspace_bytes(), flashcore_plan_workspace_bytes(plan));
  std::vector<float> a(dq.size()), b(dk.size()), c(dv.size());
  BackwardArguments args;
  args.forward = {
      .q = forward.q, .k = forward.k, .v = forward.v, .o = forward.o, .lse = forward.lse};
  args.d_o = d_o.data();
  args.dq = a.data();
  args.dk = b.data();
  args.dv = c.data();
  ASSERT_TRUE(cpp->run(args).ok());
  EXPECT_EQ(a, dq);
  EXPECT_EQ(b, dk);
  EXPECT_EQ(c, dv);
}

TEST_F(CBackward, RefusesWhatOnlyCCanGetWrong) {
  const auto run = [&](const flashcore_plan* which, const flashcore_backward_arguments* what) {
    EXPECT_EQ(flashcore_plan_run_backward(which, what, nullptr, 0, nullptr),
              FLASHCORE_INVALID_ARGUMENT);
    return std::string(flashcore_last_error());
  };
  EXPECT_THAT(run(nullptr, &arguments), HasSubstr("wanted one of flashcore_backward_plan_create"));
  EXPECT_THAT(run(plan, nullptr), StartsWith("arguments: pointer is null"));
  flashcore_backward_arguments bent = arguments;
  bent.forward = nullptr;
  EXPECT_THAT(run(plan, &bent), StartsWith("forward: pointer is null"));
  bent = arguments;
  bent.struct_size = 12;
  EXPECT_THAT(run(plan, &bent), StartsWith("arguments: struct_size is 12"));
  EXPECT_EQ(flashcore_plan_run(plan, &forward, nullptr, 0, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("plan: is for a backward pass"));

  const auto create = [&](const flashcore_gradients* what) {
    flashcore_plan* none = plan;
    EXPECT_EQ(flashcore_backward_plan_create(&problem, what, nullptr, &none),
              FLASHCORE_INVALID_ARGUMENT);
    EXPECT_EQ(none, nullptr);
    return std::string(flashcore_last_error());
  };
  EXPECT_THAT(create(nullptr), StartsWith("gradients: pointer is null"));
  flashcore_gradients other = gradients;
  other.struct_size = sizeof other - 8;
  EXPECT_THAT(create(&other), StartsWith("gradients: struct_size is"));
  other = gradients;
  other.d_lse.dtype = FLASHCORE_F64;
  EXPECT_THAT(create(&other), StartsWith("d_lse: rank is 0 but other members are not"));
  other = gradients;
  other.dk.shape[2] = 6;
  EXPECT_THAT(create(&other), StartsWith("dk: shape is [2, 2, 6, 8]"));
  EXPECT_EQ(flashcore_gradients_init(nullptr, sizeof other), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_backward_plan_create(&problem, &gradients, nullptr, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
}

// Seed and offset from memory give the same bits as the numbers do, in both passes.
TEST_F(CBackward, DropoutFromMemoryIsThatOfTheNumbers) {
  problem.dropout_p = 0.5f;
  forward.dropout_seed = 0xfedcba9876543210;
  forward.dropout_offset = 11;
  const auto run_both = [&] {
    flashcore_plan *first = nullptr, *second = nullptr;
    EXPECT_EQ(flashcore_plan_create(&problem, nullptr, &first), FLASHCORE_OK);
    EXPECT_EQ(flashcore_backward_plan_create(&problem, &gradients, nullptr, &second), FLASHCORE_OK);
    EXPECT_EQ(flashcore_plan_run(first, &forward, nullptr, 0, nullptr), FLASHCORE_OK)
        << flashcore_last_error();
    EXPECT_EQ(flashcore_plan_run_backward(second, &arguments, nullptr, 0, nullptr), FLASHCORE_OK)
        << flashcore_last_error();
    flashcore_plan_destroy(first);
    flashcore_plan_destroy(second);
    return std::vector{data.o, dq, dk, dv};
  };
  const auto with_numbers = run_both();
  problem.dropout_state = tensor(FLASHCORE_I64, {2});
  int64_t state[] = {static_cast<int64_t>(forward.dropout_seed), 11};
  forward.dropout_state = state;
  forward.dropout_seed = forward.dropout_offset = 0;
  EXPECT_EQ(run_both(), with_numbers);
  ++state[1];
  EXPECT_NE(run_both(), with_numbers);
  flashcore_plan* without = nullptr;
  ASSERT_EQ(flashcore_plan_create(&problem, nullptr, &without), FLASHCORE_OK);
  forward.dropout_state = nullptr;
  EXPECT_EQ(flashcore_plan_run(without, &forward, nullptr, 0, nullptr), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(flashcore_last_error(), StartsWith("dropout_state: pointer is null"));
  flashcore_plan_destroy(without);
}

// A program of a version without optional gradients.
TEST_F(CBackward, OlderStructsLackTheLastMembers) {
  gradients.struct_size = offsetof(flashcore_gradients, d_lse);
  flashcore_plan* older = nullptr;
  EXPECT_EQ(flashcore_backward_plan_create(&problem, &gradients, nullptr, &older), FLASHCORE_OK)
      << flashcore_last_error();
  arguments.struct_size = offsetof(flashcore_backward_arguments, d_lse);
  EXPECT_EQ(flashcore_plan_run_backward(older, &arguments, nullptr, 0, nullptr), FLASHCORE_OK)
      << flashcore_last_error();
  flashcore_plan_destroy(older);
}

TEST_F(CBackward, VerdictsAreThoseOfTheCppInterface) {
  std::vector<std::string> kernels;
  const auto visit = [](void* user, const flashcore_verdict* verdict) {
    static_cast<std::vector<std::string>*>(user)->emplace_back(verdict->kernel);
  };
  ASSERT_EQ(flashcore_visit_backward_verdicts(&problem, &gradients, nullptr, visit, &kernels),
            FLASHCORE_OK);
  EXPECT_THAT(kernels, ::testing::Contains("cpu_simd"));
  EXPECT_EQ(flashcore_visit_backward_verdicts(&problem, &gradients, nullptr, nullptr, nullptr),
            FLASHCORE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace flashcore::testing
