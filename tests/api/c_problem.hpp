// A small, valid problem of the C interface, with data, for tests to change.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"

namespace flashcore::testing {

inline flashcore_tensor tensor(int32_t dtype, const std::vector<int64_t>& shape) {
  flashcore_tensor made = {};
  EXPECT_EQ(
      flashcore_tensor_contiguous(&made, dtype, static_cast<int32_t>(shape.size()), shape.data()),
      FLASHCORE_OK);
  return made;
}

// q, k, v, o: [2, 4|2, 3|5, 8], f32, with LSE.
inline flashcore_problem small_problem() {
  flashcore_problem problem;
  flashcore_problem_init(&problem, sizeof problem);
  problem.q = problem.o = tensor(FLASHCORE_F32, {2, 4, 3, 8});
  problem.k = problem.v = tensor(FLASHCORE_F32, {2, 2, 5, 8});
  problem.lse = tensor(FLASHCORE_F32, {2, 4, 3});
  return problem;
}

// The C++ interface takes the same problem.
inline Problem small_cpp_problem() {
  Problem problem;
  problem.q = problem.o = TensorDesc::contiguous(DType::f32, {2, 4, 3, 8});
  problem.k = problem.v = TensorDesc::contiguous(DType::f32, {2, 2, 5, 8});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 3});
  return problem;
}

inline flashcore_plan_options default_options() {
  flashcore_plan_options options;
  EXPECT_EQ(flashcore_plan_options_init(&options, sizeof options), FLASHCORE_OK);
  return options;
}

// Inputs and outputs of small_problem(), outputs poisoned.
struct SmallData {
  std::vector<float> q, k, v, o, lse;

  SmallData() : q(2 * 4 * 3 * 8), k(2 * 2 * 5 * 8), v(k.size()), o(q.size(), NAN), lse(24, NAN) {
    float value = 0;
    for (std::vector<float>* tensor : {&q, &k, &v}) {
      for (float& element : *tensor) element = std::sin(value += 1.0f);
    }
  }

  flashcore_arguments arguments() {
    flashcore_arguments arguments;
    flashcore_arguments_init(&arguments, sizeof arguments);
    arguments.q = q.data();
    arguments.k = k.data();
    arguments.v = v.data();
    arguments.o = o.data();
    arguments.lse = lse.data();
    return arguments;
  }

  bool untouched() const {
    for (const std::vector<float>* tensor : {&o, &lse}) {
      for (const float element : *tensor) {
        if (!std::isnan(element)) return false;
      }
    }
    return true;
  }
};

// The status of planning and its message; frees the plan.
struct Outcome {
  flashcore_status status;
  std::string message;
};

inline Outcome plan_outcome(const flashcore_problem* problem,
                            const flashcore_plan_options* options = nullptr) {
  flashcore_plan* plan = nullptr;
  const flashcore_status status = flashcore_plan_create(problem, options, &plan);
  Outcome outcome{status, flashcore_last_error()};
  flashcore_plan_destroy(plan);
  return outcome;
}

}  // namespace flashcore::testing
