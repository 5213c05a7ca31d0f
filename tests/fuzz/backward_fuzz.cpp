// Backward plans of the C interface with arbitrary structs: for any contents, a call
// returns a status with a message, and an accepted run touches only the memory that
// its tensors describe.
//
// A quarter of the inputs are raw bytes of flashcore_gradients, with any struct_size, and a problem
// that usually has a backward pass. The others change members of a valid problem and its gradients.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "flashcore/flashcore.h"
#include "tests/fuzz/hostile_c_problem.hpp"

namespace flashcore::tests {
namespace {

// Nearly always has an LSE.
flashcore_problem problem_with_lse(Source& source) {
  flashcore_problem problem = valid_problem(source);
  if (source.draw<uint8_t>() % 16 != 0) {
    const int64_t* const o = problem.o.shape;
    flashcore_tensor_contiguous(&problem.lse, FLASHCORE_F32, problem.o.rank - 1, o);
  }
  return problem;
}

// Contiguous, with the type of its tensor, or f32.
flashcore_tensor gradient_of(const flashcore_tensor& tensor, Source& source) {
  flashcore_tensor out = {};
  if (tensor.rank == 0) return out;
  const bool f32 = source.draw<uint8_t>() % 4 == 0;
  flashcore_tensor_contiguous(&out, f32 ? FLASHCORE_F32 : tensor.dtype, tensor.rank, tensor.shape);
  return out;
}

flashcore_gradients gradients_of(const flashcore_problem& problem, Source& source) {
  flashcore_gradients gradients;
  flashcore_gradients_init(&gradients, sizeof gradients);
  const auto present = source.draw<uint8_t>();
  gradients.d_o = problem.o;
  gradients.dq = gradient_of(problem.q, source);
  gradients.dk = gradient_of(problem.k, source);
  gradients.dv = gradient_of(problem.v, source);
  if ((present & 1) != 0) gradients.d_lse = problem.lse;
  if ((present & 2) != 0) gradients.d_bias = gradient_of(problem.bias, source);
  if ((present & 4) != 0) gradients.d_sinks = gradient_of(problem.sinks, source);
  if ((present & 8) != 0) gradients.d_alibi_slopes = gradient_of(problem.alibi_slopes, source);
  return gradients;
}

void change_members(flashcore_gradients& gradients, Source& source) {
  for (int changes = source.draw<uint8_t>() % 3; changes > 0; --changes) {
    const Line& line = kOperands<Gradients>[source.draw<uint8_t>() % kOperands<Gradients>.size()];
    change_tensor(tensor_of<Gradients>(gradients, line), source.draw<uint8_t>() % 6, source);
  }
}

flashcore_plan* plan_of(const flashcore_problem& problem, const flashcore_gradients* gradients,
                        Source& source) {
  flashcore_plan_options options;
  flashcore_plan_options_init(&options, sizeof options);
  options.threads = 1;
  const char* const kernels[] = {nullptr, "reference", "naive", "cpu_simd"};
  options.kernel = kernels[source.draw<uint8_t>() % 4];
  options.deterministic = source.draw<uint8_t>() % 3;
  flashcore_plan* plan = nullptr;
  const flashcore_status status =
      flashcore_backward_plan_create(&problem, gradients, &options, &plan);
  check_status(status);
  require((status == FLASHCORE_OK) == (plan != nullptr));
  return plan;
}

void fuzz_raw(Source& source) {
  const flashcore_problem problem = problem_with_lse(source);
  const std::vector<uint64_t> gradients = raw_struct(
      source, {sizeof(flashcore_gradients), offsetof(flashcore_gradients, d_lse),
               offsetof(flashcore_gradients, d_sinks), sizeof(flashcore_gradients) + 72});
  flashcore_plan_destroy(
      plan_of(problem, reinterpret_cast<const flashcore_gradients*>(gradients.data()), source));
}

// Puts the arguments at the very end of their allocation, in a struct of any size.
void run_sized(const flashcore_plan* plan, const flashcore_backward_arguments& arguments,
               Source& source) {
  const Workspace workspace(plan);
  if (source.draw<uint8_t>() % 4 != 0) {
    check_status(
        flashcore_plan_run_backward(plan, &arguments, workspace.memory, workspace.bytes, nullptr));
    return;
  }
  const size_t size = source.draw<uint8_t>();
  std::vector<uint64_t> bytes(size < 8 ? 1 : (size + 7) / 8);
  std::memcpy(bytes.data(), &arguments,
              std::min(sizeof arguments, bytes.size() * sizeof(uint64_t)));
  bytes[0] = size;
  check_status(flashcore_plan_run_backward(
      plan, reinterpret_cast<const flashcore_backward_arguments*>(bytes.data()), workspace.memory,
      workspace.bytes, nullptr));
}

void run(const flashcore_plan* plan, flashcore_problem& problem, flashcore_gradients& gradients,
         Source& source) {
  Memory<Problem> memory;
  Memory<Gradients> own;
  flashcore_arguments forward;
  if (!is_small(plan, problem) || !make_forward(problem, source, memory, forward)) return;
  if (!own.make(gradients, source)) return;
  flashcore_backward_arguments arguments;
  flashcore_backward_arguments_init(&arguments, sizeof arguments);
  own.bind(arguments);
  arguments.forward = source.draw<uint8_t>() % 64 == 63 ? nullptr : &forward;
  run_sized(plan, arguments, source);
  // A forward run refuses the plan, and reads nothing.
  require(flashcore_plan_run(plan, &forward, nullptr, 0, nullptr) == FLASHCORE_INVALID_ARGUMENT);
}

void fuzz_changed(Source& source) {
  flashcore_problem problem = problem_with_lse(source);
  change_members(problem, source);
  flashcore_gradients gradients = gradients_of(problem, source);
  change_members(gradients, source);
  flashcore_plan* const plan = plan_of(problem, &gradients, source);
  if (plan != nullptr) run(plan, problem, gradients, source);
  flashcore_plan_destroy(plan);
}

}  // namespace
}  // namespace flashcore::tests

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flashcore::tests::Source source(data, size);
  if (source.draw<uint8_t>() % 4 == 0) {
    flashcore::tests::fuzz_raw(source);
  } else {
    flashcore::tests::fuzz_changed(source);
  }
  return 0;
}
