// Validation of gradients and of a backward run's pointers: each refusal names the argument, its
// value, and what is wanted.
#include "problem/backward.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/tensors/backward_set.hpp"
#include "problem/run_tensors.hpp"
#include "tests/problem/problems.hpp"

namespace flashcore {
namespace {

using ::testing::HasSubstr;

struct Bend {
  std::string name;
  std::function<void(Problem&, Gradients&)> bend;
  std::string argument, value, wanted;
};

class BackwardRefusal : public ::testing::TestWithParam<Bend> {};

Problem base_problem() {
  Problem problem = dense_problem();
  problem.bias = TensorDesc::contiguous(DType::f16, {1, 4, 1, 5});
  problem.sinks = TensorDesc::contiguous(DType::f32, {4});
  problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {2, 4});
  return problem;
}

TEST_P(BackwardRefusal, NamesArgumentValueAndWhatIsWanted) {
  Problem problem = base_problem();
  Gradients gradients = bench::gradients_of(problem, true);
  ASSERT_TRUE(resolve(problem, gradients).ok()) << resolve(problem, gradients).status().message();
  GetParam().bend(problem, gradients);
  const Result<BackwardProblem> resolved = resolve(problem, gradients);
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.status().code(), StatusCode::invalid_argument);
  EXPECT_THAT(resolved.status().message(), ::testing::StartsWith(GetParam().argument));
  EXPECT_THAT(resolved.status().message(), HasSubstr(GetParam().value));
  EXPECT_THAT(resolved.status().message(), HasSubstr(GetParam().wanted));
}

using P = Problem&;
using G = Gradients&;

INSTANTIATE_TEST_SUITE_P(
    All, BackwardRefusal,
    ::testing::Values(
        Bend{"no_lse", [](P p, G) { p.lse.reset(); }, "lse:", "missing", "the forward pass"},
        Bend{"fp8", [](P p, G) { p.q.dtype = p.k.dtype = p.v.dtype = DType::f8e4m3; },
             "q:", "f8e4m3", "f32, f16 or bf16"},
        Bend{"fp8_o", [](P p, G) { p.o.dtype = DType::f8e5m2; }, "o:", "f8e5m2", "f64"},
        Bend{"d_o_type", [](P, G g) { g.d_o.dtype = DType::bf16; }, "d_o:", "bf16", "f32"},
        Bend{"d_o_shape", [](P, G g) { g.d_o.shape[2] = 4; }, "d_o:", "[2, 4, 4, 6]", "o's"},
        Bend{"d_o_rows", [](P, G g) { g.d_o.stride[3] = 2; }, "d_o:", "2", "1"},
        Bend{"dq_type", [](P, G g) { g.dq.dtype = DType::f16; }, "dq:", "f16", "f32"},
        Bend{"dq_number", [](P, G g) { g.dq.dtype = static_cast<DType>(77); }, "dq:", "77",
             "0 to 8"},
        Bend{"dk_shape", [](P, G g) { g.dk.shape[1] = 4; }, "dk:", "[2, 4, 5, 8]", "k's"},
        Bend{"dv_overlap", [](P, G g) { g.dv.stride[2] = 0; }, "dv:", "overlap", "do not overlap"},
        Bend{"dk_rank", [](P, G g) { g.dk.rank = 3; }, "dk:", "3", "4"},
        Bend{"d_lse_type", [](P, G g) { g.d_lse->dtype = DType::f16; }, "d_lse:", "f16", "f32"},
        Bend{"d_lse_shape", [](P, G g) { g.d_lse->shape[2] = 2; }, "d_lse:", "[2, 4, 2]",
             "[2, 4, 3]"},
        Bend{"no_bias", [](P p, G) { p.bias.reset(); }, "d_bias:", "given", "a bias"},
        Bend{"d_bias_type", [](P, G g) { g.d_bias->dtype = DType::bf16; }, "d_bias:", "bf16",
             "f16 or f32"},
        Bend{"d_bias_shape",
             [](P, G g) {
               g.d_bias = TensorDesc::contiguous(DType::f32, {1, 4, 3, 5});
             },
             "d_bias:", "[1, 4, 3, 5]", "[1, 4, 1, 5]"},
        Bend{"d_bias_overlap", [](P, G g) { g.d_bias->stride[1] = 0; }, "d_bias:", "overlap",
             "do not overlap"},
        Bend{"no_sinks", [](P p, G) { p.sinks.reset(); }, "d_sinks:", "given", "sinks"},
        Bend{"d_sinks_type", [](P, G g) { g.d_sinks->dtype = DType::f16; }, "d_sinks:", "f16",
             "f32"},
        Bend{"d_sinks_shape", [](P, G g) { g.d_sinks->shape[0] = 2; }, "d_sinks:", "[2]", "[4]"},
        Bend{"no_slopes", [](P p, G) { p.alibi_slopes.reset(); }, "d_alibi_slopes:", "given",
             "alibi_slopes"},
        Bend{"d_slopes_shape",
             [](P, G g) { g.d_alibi_slopes = TensorDesc::contiguous(DType::f32, {4}); },
             "d_alibi_slopes:", "1", "2"},
        Bend{"d_slopes_overlap", [](P, G g) { g.d_alibi_slopes->stride[0] = 0; },
             "d_alibi_slopes:", "overlap", "do not overlap"}),
    [](const auto& bend) { return bend.param.name; });

TEST(BackwardProblem, SumsOverTheDimensionsThatTheBiasLacks) {
  const Problem problem = base_problem();
  const Result<BackwardProblem> resolved = resolve(problem, bench::gradients_of(problem, false));
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->d_bias.batch, 0);
  EXPECT_EQ(resolved->d_bias.head, 5);
  EXPECT_EQ(resolved->d_bias.query, 0);
  EXPECT_EQ(resolved->d_bias.key, 1);
  EXPECT_EQ(resolved->d_bias_elements, 20);
  EXPECT_EQ(resolved->d_alibi_slopes_elements, 8);
  EXPECT_FALSE(resolved->has_d_lse);
}

struct BackwardPointers : ::testing::Test {
  BackwardPointers()
      : host(std::move(*bench::make_host_backward(bench::make_host_problem(base_problem(), 1),
                                                  bench::gradients_of(base_problem(), true), 1))),
        tensors(host.forward.problem, host.gradients) {}

  std::string refusal(const std::function<void(BackwardArguments&)>& bend) {
    BackwardArguments args = host.arguments();
    bend(args);
    const Status status = tensors.check(args);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    return status.message();
  }

  bench::HostBackward host;
  RunTensors tensors;
};

TEST_F(BackwardPointers, AllAreThere) {
  EXPECT_TRUE(tensors.check(host.arguments()).ok());
  using A = BackwardArguments&;
  EXPECT_THAT(refusal([](A a) { a.forward.o = nullptr; }), HasSubstr("o: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.forward.lse = nullptr; }), HasSubstr("lse: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.d_o = nullptr; }), HasSubstr("d_o: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.d_lse = nullptr; }), HasSubstr("d_lse: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.dq = nullptr; }), HasSubstr("dq: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.dk = nullptr; }), HasSubstr("dk: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.dv = nullptr; }), HasSubstr("dv: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.d_bias = nullptr; }), HasSubstr("d_bias: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.d_sinks = nullptr; }), HasSubstr("d_sinks: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.d_alibi_slopes = nullptr; }),
              HasSubstr("d_alibi_slopes: pointer is null"));
  EXPECT_THAT(refusal([](A a) { a.dq = static_cast<char*>(a.dq) + 1; }), HasSubstr("dq: pointer"));
}

TEST_F(BackwardPointers, OutputsShareNoMemory) {
  using A = BackwardArguments&;
  EXPECT_THAT(refusal([](A a) { a.dq = const_cast<void*>(a.forward.q); }),
              HasSubstr("overlaps the memory of q"));
  EXPECT_THAT(refusal([](A a) { a.dv = a.forward.o; }), HasSubstr("overlaps the memory of o"));
  EXPECT_THAT(refusal([](A a) { a.dk = a.dv; }), HasSubstr("dv: pointer"));
  EXPECT_THAT(refusal([](A a) { a.d_bias = const_cast<void*>(a.forward.bias); }),
              HasSubstr("overlaps the memory of bias"));
  EXPECT_THAT(refusal([](A a) { a.d_sinks = const_cast<float*>(a.forward.sinks); }),
              HasSubstr("overlaps the memory of sinks"));
  EXPECT_THAT(refusal([](A a) { a.d_alibi_slopes = const_cast<void*>(a.d_lse); }),
              HasSubstr("overlaps the memory of d_lse"));
}

// Rows of one buffer with 32 columns: dk's and dv's are disjoint, or not.
TEST(BackwardOutputs, MayBeWovenButNotOverlap) {
  Problem problem;
  problem.q = problem.k = problem.v = problem.o = TensorDesc::contiguous(DType::f32, {1, 1, 6, 8});
  problem.lse = TensorDesc::contiguous(DType::f32, {1, 1, 6});
  Gradients gradients = bench::gradients_of(problem, false);
  gradients.dk = gradients.dv = TensorDesc::strided(DType::f32, {1, 1, 6, 8}, {192, 192, 32, 1});
  bench::HostBackward host = std::move(*bench::make_host_backward(
      bench::make_host_problem(problem, 1), bench::gradients_of(problem, false), 1));
  std::vector<float> buffer(256);
  BackwardArguments args = host.arguments();
  args.dk = buffer.data();
  ASSERT_TRUE(resolve(problem, gradients).ok());
  const RunTensors tensors(problem, gradients);
  for (const int64_t apart : {8, 24, 32 + 8}) {
    args.dv = buffer.data() + apart;
    EXPECT_TRUE(tensors.check(args).ok()) << apart;
  }
  for (const int64_t shifted : {0, 7, 25, 32, 64 + 1}) {
    args.dv = buffer.data() + shifted;
    EXPECT_THAT(tensors.check(args).message(),
                HasSubstr("overlaps the memory of dk, wanted memory of its own"))
        << shifted;
  }
}

TEST_F(BackwardPointers, ARunOfTheOtherPassIsRefused) {
  const Result<Plan> forward = make_plan(host.forward.problem);
  const Result<Plan> backward = make_backward_plan(host.forward.problem, host.gradients);
  ASSERT_TRUE(forward.ok() && backward.ok());
  EXPECT_THAT(forward->run(host.arguments()).message(), HasSubstr("is for a forward pass"));
  EXPECT_THAT(backward->run(host.forward.arguments()).message(),
              HasSubstr("is for a backward pass"));
}

TEST(DropoutState, IsRefusedWhereItIsMalformed) {
  Problem problem = dense_problem();
  problem.dropout_p = 0.5F;
  problem.dropout_state = TensorDesc::contiguous(DType::i32, {2});
  EXPECT_THAT(resolve(problem).status().message(), HasSubstr("dropout_state: dtype is i32"));
  problem.dropout_state = TensorDesc::contiguous(DType::i64, {3});
  EXPECT_THAT(resolve(problem).status().message(), HasSubstr("dropout_state: shape is [3]"));
  problem.dropout_state = TensorDesc::contiguous(DType::i64, {2});
  bench::HostProblem host = bench::make_host_problem(problem, 1);
  const Result<Plan> plan = make_plan(problem);
  ASSERT_TRUE(plan.ok());
  Arguments args = host.arguments();
  args.dropout_state = nullptr;
  EXPECT_THAT(plan->run(args).message(), HasSubstr("dropout_state: pointer is null"));
  problem.dropout_p = 0;  // then it is not read
  const Result<ForwardProblem> without = resolve(problem);
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->dropout_state.present);
}

}  // namespace
}  // namespace flashcore
