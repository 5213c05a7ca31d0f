// The structs of the C interface: their layout, their defaults, other
// versions, and garbage.
#include "api/c_structs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"
#include "tests/api/c_problem.hpp"

namespace flashcore::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The ABI of programs compiled against version 0.1. Members may be added at the end, never moved.
TEST(CStructs, LayoutIsThatOfVersion01) {
  EXPECT_EQ(sizeof(flashcore_tensor), 72u);
  EXPECT_EQ(offsetof(flashcore_problem, q), 8u);
  EXPECT_EQ(offsetof(flashcore_problem, lse), 8u + 4 * 72);
  EXPECT_EQ(offsetof(flashcore_problem, causal_offsets), 8u + 16 * 72);
  EXPECT_EQ(offsetof(flashcore_problem, has_softmax_scale), 1232u);
  EXPECT_EQ(offsetof(flashcore_problem, causal_offset), 1256u);
  EXPECT_EQ(offsetof(flashcore_problem, max_seqlen_kv), 1296u);
  EXPECT_GE(sizeof(flashcore_problem), 1304u);
  EXPECT_EQ(offsetof(flashcore_plan_options, kernel), 16u);
  EXPECT_EQ(offsetof(flashcore_plan_options, batch_invariant), 28u);
  EXPECT_EQ(offsetof(flashcore_plan_options, early_start), 32u);
  EXPECT_EQ(offsetof(flashcore_arguments, lse), 40u);
  EXPECT_EQ(offsetof(flashcore_arguments, dropout_seed), 144u);
  // Later members come after everything in version 0.1, including padding.
  EXPECT_EQ(offsetof(flashcore_problem, dropout_state), 1304u);
  EXPECT_EQ(offsetof(flashcore_plan_options, deterministic), 40u);
  EXPECT_EQ(offsetof(flashcore_arguments, dropout_state), 160u);
  EXPECT_EQ(offsetof(flashcore_problem, page_table), 1376u);
  EXPECT_EQ(offsetof(flashcore_arguments, page_table), 168u);
  EXPECT_EQ(offsetof(flashcore_problem, o_scale), offsetof(flashcore_problem, tree_mask) + 72);
  EXPECT_EQ(offsetof(flashcore_arguments, o_scale), offsetof(flashcore_arguments, tree_mask) + 8);
  EXPECT_EQ(offsetof(flashcore_device_info, name), 40u);
  EXPECT_EQ(offsetof(flashcore_build_info, cuda), 48u);
}

TEST(CStructs, EnumsAreThoseOfTheCppInterface) {
  EXPECT_EQ(FLASHCORE_OK, static_cast<int>(StatusCode::ok));
  EXPECT_EQ(FLASHCORE_INVALID_ARGUMENT, static_cast<int>(StatusCode::invalid_argument));
  EXPECT_EQ(FLASHCORE_UNSUPPORTED, static_cast<int>(StatusCode::unsupported));
  EXPECT_EQ(FLASHCORE_OUT_OF_MEMORY, static_cast<int>(StatusCode::out_of_memory));
  EXPECT_EQ(FLASHCORE_DEVICE_ERROR, static_cast<int>(StatusCode::device_error));
  EXPECT_EQ(FLASHCORE_INTERNAL, static_cast<int>(StatusCode::internal));
  EXPECT_EQ(FLASHCORE_F32, static_cast<int>(DType::f32));
  EXPECT_EQ(FLASHCORE_F16, static_cast<int>(DType::f16));
  EXPECT_EQ(FLASHCORE_BF16, static_cast<int>(DType::bf16));
  EXPECT_EQ(FLASHCORE_F8E4M3, static_cast<int>(DType::f8e4m3));
  EXPECT_EQ(FLASHCORE_F8E5M2, static_cast<int>(DType::f8e5m2));
  EXPECT_EQ(FLASHCORE_BOOLEAN, static_cast<int>(DType::boolean));
  EXPECT_EQ(FLASHCORE_I32, static_cast<int>(DType::i32));
  EXPECT_EQ(FLASHCORE_F64, static_cast<int>(DType::f64));
  EXPECT_EQ(FLASHCORE_I64, static_cast<int>(DType::i64));
  EXPECT_EQ(FLASHCORE_TOP_LEFT, static_cast<int>(Alignment::top_left));
  EXPECT_EQ(FLASHCORE_BOTTOM_RIGHT, static_cast<int>(Alignment::bottom_right));
  EXPECT_EQ(FLASHCORE_GIVEN, static_cast<int>(Alignment::given));
  EXPECT_EQ(FLASHCORE_CPU, static_cast<int>(DeviceKind::cpu));
  EXPECT_EQ(FLASHCORE_CUDA, static_cast<int>(DeviceKind::cuda));
  EXPECT_EQ(FLASHCORE_SIM, static_cast<int>(DeviceKind::sim));
}

TEST(CStructs, InitGivesTheDefaultsOfTheCppInterface) {
  flashcore_problem problem;
  std::memset(&problem, 0xff, sizeof problem);
  ASSERT_EQ(flashcore_problem_init(&problem, sizeof problem), FLASHCORE_OK);
  const Problem defaults;
  EXPECT_EQ(problem.struct_size, sizeof problem);
  EXPECT_EQ(problem.q.rank, 0);
  EXPECT_EQ(problem.causal_offsets.stride[3], 0);
  EXPECT_EQ(problem.has_softmax_scale, 0);
  EXPECT_EQ(problem.softmax_scale, 0);
  EXPECT_EQ(problem.softcap, defaults.softcap);
  EXPECT_EQ(problem.causal, 0);
  EXPECT_EQ(problem.alignment, static_cast<int>(defaults.alignment));
  EXPECT_EQ(problem.dropout_p, defaults.dropout_p);
  EXPECT_EQ(problem.causal_offset, defaults.causal_offset);
  EXPECT_EQ(problem.window_left, defaults.window_left);
  EXPECT_EQ(problem.window_right, defaults.window_right);
  EXPECT_EQ(problem.kv_scale_block, defaults.kv_scale_block);
  EXPECT_EQ(problem.max_seqlen_q, defaults.max_seqlen_q);
  EXPECT_EQ(problem.max_seqlen_kv, defaults.max_seqlen_kv);
  EXPECT_EQ(problem.v_transposed, 0);
  EXPECT_EQ(problem.reserved, 0);

  flashcore_plan_options options;
  std::memset(&options, 0xff, sizeof options);
  ASSERT_EQ(flashcore_plan_options_init(&options, sizeof options), FLASHCORE_OK);
  EXPECT_EQ(options.struct_size, sizeof options);
  EXPECT_EQ(options.device_kind, FLASHCORE_CPU);
  EXPECT_EQ(options.device_index, 0);
  EXPECT_EQ(options.kernel, nullptr);
  EXPECT_EQ(options.threads, 0);
  EXPECT_EQ(options.batch_invariant, 0);
  EXPECT_EQ(options.early_start, 0);
  EXPECT_EQ(options.deterministic, 1);
  EXPECT_EQ(options.reserved, 0);

  flashcore_arguments arguments;
  std::memset(&arguments, 0xff, sizeof arguments);
  ASSERT_EQ(flashcore_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
  EXPECT_EQ(arguments.struct_size, sizeof arguments);
  EXPECT_EQ(arguments.q, nullptr);
  EXPECT_EQ(arguments.dropout_offset, 0u);
  EXPECT_EQ(arguments.dropout_state, nullptr);
}

TEST(CStructs, InitRefusesNullAndImpossibleSizes) {
  flashcore_problem problem;
  EXPECT_EQ(flashcore_problem_init(nullptr, sizeof problem), FLASHCORE_INVALID_ARGUMENT);
  for (const size_t size : {size_t{0}, size_t{8}, sizeof problem + 1, size_t{1} << 40, SIZE_MAX}) {
    EXPECT_EQ(flashcore_problem_init(&problem, size), FLASHCORE_INVALID_ARGUMENT) << size;
    EXPECT_THAT(flashcore_last_error(), HasSubstr(std::to_string(size)));
  }
  EXPECT_EQ(flashcore_plan_options_init(nullptr, 32), FLASHCORE_INVALID_ARGUMENT);
  EXPECT_EQ(flashcore_arguments_init(nullptr, 160), FLASHCORE_INVALID_ARGUMENT);
}

// A caller with a shorter struct: bytes past its size are not written.
TEST(CStructs, InitWritesOnlyTheCallersBytes) {
  std::vector<uint64_t> memory(sizeof(flashcore_problem) / 8, ~uint64_t{0});
  const size_t size = offsetof(flashcore_problem, window_left);
  ASSERT_EQ(flashcore_problem_init(reinterpret_cast<flashcore_problem*>(memory.data()), size),
            FLASHCORE_OK);
  EXPECT_EQ(memory[0], size);
  EXPECT_EQ(memory[size / 8 - 1], 0u);
  EXPECT_EQ(memory[size / 8], ~uint64_t{0});
}

// An older program's struct ends early: later members have their defaults, so a window of 0 behind
// the end is not read.
TEST(CStructs, ShorterProblemHasDefaultsForTheRest) {
  flashcore_problem problem = small_problem();
  problem.window_left = 1ll << 40;  // malformed, if it is read
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_INVALID_ARGUMENT);
  problem.struct_size = offsetof(flashcore_problem, window_left);
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_OK);
  problem.struct_size = offsetof(flashcore_problem, lse);
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_OK);
  problem.struct_size = offsetof(flashcore_problem, cu_seqlens_q);
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_OK);
  problem = small_problem();
  problem.v_transposed = 7;  // garbage behind the struct of an older program
  problem.struct_size = offsetof(flashcore_problem, v_transposed);
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_OK);
}

TEST(CStructs, SizesThatCutAMemberAreRefused) {
  for (const size_t size :
       {size_t{0}, size_t{7}, size_t{8}, offsetof(flashcore_problem, o),
        offsetof(flashcore_problem, lse) + 8, offsetof(flashcore_problem, window_left) + 4,
        offsetof(flashcore_problem, dropout_state) + 8,
        offsetof(flashcore_problem, v_transposed) - 8, sizeof(flashcore_problem) - 4,
        sizeof(flashcore_problem) + 4, size_t{8200}, SIZE_MAX}) {
    flashcore_problem problem = small_problem();
    problem.struct_size = size;
    const Outcome outcome = plan_outcome(&problem);
    EXPECT_EQ(outcome.status, FLASHCORE_INVALID_ARGUMENT) << size;
    EXPECT_THAT(outcome.message, HasSubstr("struct_size is " + std::to_string(size)));
  }
}

// A newer program's struct: zeros past the known members are defaults; anything else is an unknown
// request, and refused.
TEST(CStructs, LongerProblemMustBeZeroBeyond) {
  std::vector<uint64_t> memory(sizeof(flashcore_problem) / 8 + 4, 0);
  flashcore_problem problem = small_problem();
  problem.struct_size = memory.size() * 8;
  std::memcpy(memory.data(), &problem, sizeof problem);
  const auto* longer = reinterpret_cast<const flashcore_problem*>(memory.data());
  EXPECT_EQ(plan_outcome(longer).status, FLASHCORE_OK);
  memory.back() = uint64_t{1} << 56;  // the very last byte
  const Outcome outcome = plan_outcome(longer);
  EXPECT_EQ(outcome.status, FLASHCORE_UNSUPPORTED);
  EXPECT_THAT(outcome.message,
              StartsWith("problem: byte " + std::to_string(memory.size() * 8 - 1)));
}

TEST(CStructs, MisalignedStructIsRefused) {
  std::vector<uint64_t> memory(sizeof(flashcore_problem) / 8 + 1, 0);
  flashcore_problem problem = small_problem();
  auto* const odd = reinterpret_cast<char*>(memory.data()) + 1;
  std::memcpy(odd, &problem, sizeof problem);
  // Converts through an integer: the compiler must not see that the pointer is odd.
  const auto address = reinterpret_cast<uintptr_t>(odd);
  const Outcome outcome = plan_outcome(reinterpret_cast<const flashcore_problem*>(address));
  EXPECT_EQ(outcome.status, FLASHCORE_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("not aligned"));
}

TEST(CStructs, AbsentTensorMustBeAllZero) {
  flashcore_problem problem = small_problem();
  problem.bias.shape[2] = 5;
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("bias: rank is 0"));
  problem = small_problem();
  problem.causal_offsets.dtype = FLASHCORE_I32;
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("causal_offsets: rank is 0"));
  problem = small_problem();
  problem.mask.stride[3] = -1;
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("mask: rank is 0"));
}

TEST(CStructs, FlagsAndEnumsAreValidated) {
  using P = flashcore_problem&;
  constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
  const std::pair<void (*)(P), const char*> rows[] = {
      {[](P p) { p.causal = 2; }, "causal: is 2"},
      {[](P p) { p.has_softmax_scale = -1; }, "has_softmax_scale: is -1"},
      {[](P p) { p.softmax_scale = 0.5f; }, "softmax_scale: is 0.5"},
      {[](P p) { p.softmax_scale = NAN; }, "softmax_scale: is nan"},
      {[](P p) { p.alignment = 3; }, "alignment: is 3"},
      {[](P p) { p.q.dtype = kLowest; }, "q: dtype is number"},
      {[](P p) { p.k.rank = std::numeric_limits<int32_t>::max(); }, "k: rank is"},
      {[](P p) { p.o.rank = 0; }, "o: rank is 0"},
      {[](P p) { p.v.stride[0] = std::numeric_limits<int64_t>::min(); }, "v: strides"}};
  for (const auto& [change, sentence] : rows) {
    flashcore_problem problem = small_problem();
    change(problem);
    const Outcome outcome = plan_outcome(&problem);
    EXPECT_EQ(outcome.status, FLASHCORE_INVALID_ARGUMENT) << sentence;
    EXPECT_THAT(outcome.message, StartsWith(sentence));
  }
}

TEST(CStructs, OptionsAreValidated) {
  using O = flashcore_plan_options&;
  static const std::string endless(100000, 'x');
  const std::pair<void (*)(O), const char*> rows[] = {
      {[](O o) { o.struct_size = 12; }, "options: struct_size is 12"},
      {[](O o) { o.device_kind = 7; }, "device: kind is 7"},
      {[](O o) { o.device_index = 3; }, "device: CPU index is 3"},
      {[](O o) { o.threads = -4; }, "threads: is -4"},
      {[](O o) { o.batch_invariant = 9; }, "batch_invariant: is 9"},
      {[](O o) { o.early_start = -1; }, "early_start: is -1"},
      {[](O o) { o.kernel = "no such kernel"; }, "kernel: is 'no such kernel'"},
      {[](O o) { o.kernel = endless.c_str(); }, "kernel: has more than 255"},
      {[](O o) { o.deterministic = 2; }, "deterministic: is 2, wanted 0 or 1"},
      {[](O o) { o.reserved = 1; }, "reserved: is 1, wanted 0"}};
  const flashcore_problem problem = small_problem();
  for (const auto& [change, sentence] : rows) {
    flashcore_plan_options options = default_options();
    change(options);
    const Outcome outcome = plan_outcome(&problem, &options);
    EXPECT_EQ(outcome.status, FLASHCORE_INVALID_ARGUMENT) << sentence;
    EXPECT_THAT(outcome.message, StartsWith(sentence));
  }
  const auto expect_valid = [&](void (*change)(O)) {
    flashcore_plan_options options = default_options();
    change(options);
    EXPECT_EQ(plan_outcome(&problem, &options).message, "");
  };
  expect_valid([](O) {});
  expect_valid([](O o) { o.early_start = 1; });
  expect_valid([](O o) { o.kernel = ""; });
  constexpr size_t kVersion01Bytes = 32;  // without early_start, which is off then
  expect_valid([](O o) { o.struct_size = kVersion01Bytes, o.early_start = 9; });
}

// A struct that ends before `deterministic` gets the default, for any bytes behind it.
TEST(CStructs, DeterministicIsTheDefaultAndReachesThePlan) {
  flashcore_plan_options options;
  ASSERT_EQ(flashcore_plan_options_init(&options, sizeof options), FLASHCORE_OK);
  EXPECT_TRUE(api::read_options(&options)->deterministic);
  options.deterministic = 0;
  EXPECT_FALSE(api::read_options(&options)->deterministic);
  options.ignored = -1;
  EXPECT_FALSE(api::read_options(&options)->deterministic);
  options.struct_size = offsetof(flashcore_plan_options, deterministic);
  const Result<PlanOptions> older = api::read_options(&options);
  ASSERT_TRUE(older.ok()) << older.status().message();
  EXPECT_TRUE(older->deterministic);
  EXPECT_TRUE(api::read_options(nullptr)->deterministic);
}

// A program of a version without dropout_state.
TEST(CStructs, OlderStructsHaveNoDropoutState) {
  flashcore_problem problem = small_problem();
  problem.dropout_p = 0.5f;
  problem.dropout_state = tensor(FLASHCORE_I64, {2});
  EXPECT_TRUE(api::read_problem(&problem)->dropout_state.has_value());
  problem.struct_size = offsetof(flashcore_problem, dropout_state);
  EXPECT_FALSE(api::read_problem(&problem)->dropout_state.has_value());

  flashcore_arguments arguments;
  ASSERT_EQ(flashcore_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
  const int64_t state[] = {1, 2};
  arguments.dropout_state = state;
  EXPECT_EQ(api::read_arguments(&arguments)->dropout_state, state);
  arguments.struct_size = offsetof(flashcore_arguments, dropout_state);
  EXPECT_EQ(api::read_arguments(&arguments)->dropout_state, nullptr);
}

// A program of a version without scales of O and largest values.
TEST(CStructs, OlderStructsHaveNoMoreOutputs) {
  flashcore_problem problem = small_problem();
  problem.o_scale = problem.amax_o = problem.amax_s = problem.max_logit =
      tensor(FLASHCORE_F32, {1, 1});
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("o_scale: is present with an o of f32"));
  problem.o.dtype = FLASHCORE_F8E5M2;
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_OK);
  const Result<Problem> now = api::read_problem(&problem);
  EXPECT_TRUE(now->o_scale && now->amax_o && now->amax_s && now->max_logit);
  problem.struct_size = offsetof(flashcore_problem, max_logit);
  EXPECT_FALSE(api::read_problem(&problem)->max_logit);
  problem.struct_size = offsetof(flashcore_problem, amax_s);
  const Result<Problem> between = api::read_problem(&problem);
  EXPECT_TRUE(between->o_scale && between->amax_o && !between->amax_s);
  problem.struct_size = offsetof(flashcore_problem, o_scale);
  const Result<Problem> older = api::read_problem(&problem);
  EXPECT_FALSE(older->o_scale || older->amax_o || older->amax_s);

  flashcore_arguments arguments;
  ASSERT_EQ(flashcore_arguments_init(&arguments, sizeof arguments), FLASHCORE_OK);
  float values[4] = {};
  arguments.o_scale = &values[0];
  arguments.amax_o = &values[1];
  arguments.amax_s = &values[2];
  arguments.max_logit = &values[3];
  const Result<Arguments> read = api::read_arguments(&arguments);
  EXPECT_EQ(read->o_scale, &values[0]);
  EXPECT_EQ(read->amax_o, &values[1]);
  EXPECT_EQ(read->amax_s, &values[2]);
  EXPECT_EQ(read->max_logit, &values[3]);
  arguments.struct_size = offsetof(flashcore_arguments, o_scale);
  EXPECT_EQ(api::read_arguments(&arguments)->amax_s, nullptr);
}

TEST(CStructs, DropoutStateIsValidated) {
  flashcore_problem problem = small_problem();
  problem.dropout_state.shape[0] = 2;
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("dropout_state: rank is 0"));
  problem.dropout_state = tensor(FLASHCORE_I64, {3});
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("dropout_state: shape is [3]"));
  problem.dropout_state.shape[0] = 2;
  problem.dropout_state.dtype = FLASHCORE_I32;
  EXPECT_THAT(plan_outcome(&problem).message, StartsWith("dropout_state: dtype is i32"));
  problem.dropout_state.dtype = FLASHCORE_I64;
  EXPECT_EQ(plan_outcome(&problem).status, FLASHCORE_OK);
}

}  // namespace
}  // namespace flashcore::testing
