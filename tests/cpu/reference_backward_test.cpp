// The reference's gradients: against finite differences of the oracle, which knows no gradients,
// and the guarantees for rows without keys, hidden NaNs and padding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bench/cases/random_backward.hpp"
#include "tests/cpu/oracle.hpp"
#include "tests/problem_count.hpp"

namespace flashcore {
namespace {

using bench::HostBackward;
using bench::HostProblem;
using bench::HostTensor;
using Real = long double;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The gradients of a run in fp64, by name.
std::map<std::string, HostTensor, std::less<>> exact_gradients(HostBackward& host, int threads = 0,
                                                               const char* kernel = "reference") {
  const Gradients wanted = bench::exact(host.gradients);
  std::map<std::string, HostTensor, std::less<>> out;
  bench::for_each_gradient(wanted, [&](std::string_view name, const TensorDesc& desc) {
    if (bench::is_gradient_output(name)) out.emplace(name, HostTensor(desc));
  });
  PlanOptions options;
  options.kernel = kernel;
  options.threads = threads;
  const Result<Plan> plan = make_backward_plan(host.forward.problem, wanted, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return out;
  const BackwardArguments args =
      bench::bind(wanted, host.forward.arguments(), [&](std::string_view name) {
        const auto found = out.find(name);
        return found == out.end() ? host.at(name).data() : found->second.data();
      });
  const Status status = plan->run(args);
  EXPECT_TRUE(status.ok()) << status.message();
  for (const auto& [name, tensor] : out) EXPECT_TRUE(tensor.canaries_intact()) << name;
  return out;
}

// The differentiated function: dO . O + dLSE . LSE, over the rows in use that see a key or a sink.
Real loss(const HostBackward& host, const HostProblem& inputs) {
  const OracleResult result = oracle(inputs);
  const HostTensor& d_o = host.at("d_o");
  Real sum = 0;
  for (size_t i = 0; i < result.o.size(); ++i) {
    if (result.o[i] != 0) sum += result.o[i] * d_o.get(static_cast<int64_t>(i));
  }
  if (!host.gradients.d_lse) return sum;
  const HostTensor& d_lse = host.at("d_lse");
  for (size_t i = 0; i < result.lse.size(); ++i) {
    if (std::isfinite(result.lse[i])) sum += result.lse[i] * d_lse.get(static_cast<int64_t>(i));
  }
  return sum;
}

// Fourth order: central differences with steps h and h / 2.
Real difference(const HostBackward& host, HostProblem& inputs, std::string_view name, int64_t i) {
  HostTensor& tensor = inputs.at(name);
  const double value = tensor.get(i);
  const auto central = [&](double h) {
    tensor.set(i, value + h);
    const Real above = loss(host, inputs);
    tensor.set(i, value - h);
    const Real below = loss(host, inputs);
    tensor.set(i, value);
    return (above - below) / (2 * static_cast<Real>(h));
  };
  constexpr double kStep = 0x1p-7;
  return (4 * central(kStep / 2) - central(kStep)) / 3;
}

// Rounds elements so that a difference step is exact.
void coarsen(HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.get(i);
    if (std::isfinite(value)) tensor.set(i, std::nearbyint(value * 0x1p6) * 0x1p-6);
  }
}

// Rows past the queries in use have an LSE, too, but its gradient is not defined.
void forget_padding(HostBackward& host) {
  const HostProblem& forward = host.forward;
  if (!forward.has("seqlens_q")) return;
  const bool packed = forward.problem.cu_seqlens_q.has_value();
  const int64_t entries = forward.at("seqlens_q").elements();
  for (const char* const name : {"d_o", "d_lse"}) {
    if (host.tensors.find(name) == host.tensors.end()) continue;
    HostTensor& tensor = host.at(name);
    const auto& shape = tensor.desc().shape;
    const int64_t width = name == std::string_view("d_o") ? shape[packed ? 2 : 3] : 1;
    for (int64_t element = 0; element < tensor.elements(); ++element) {
      const int64_t row = element / width;
      bool in_use = false;
      if (packed) {
        const int64_t position = row / shape[1];
        for (int64_t b = 0; b < entries; ++b) {
          const auto first = static_cast<int64_t>(forward.at("cu_seqlens_q").get(b));
          const auto last = static_cast<int64_t>(forward.at("cu_seqlens_q").get(b + 1));
          const auto used = static_cast<int64_t>(forward.at("seqlens_q").get(b));
          in_use = in_use || (position >= first && position < std::min(last, first + used));
        }
      } else {
        const int64_t entry = row / shape[2] / shape[1];
        in_use = row % shape[2] < static_cast<int64_t>(forward.at("seqlens_q").get(entry));
      }
      if (!in_use) tensor.set(element, 0);
    }
  }
}

TEST(ReferenceBackward, MatchesFiniteDifferences) {
  bench::RandomSpace space;
  space.largest_seqlen = 5;
  space.largest_head_dim = 8;
  space.any_dtype = false;
  space.dtype = DType::f32;
  space.hostile_values = false;
  int compared = 0, with_bias = 0, with_sinks = 0, with_slopes = 0;
  for (uint64_t seed = 0; compared < (kSanitized ? 20 : 60); ++seed) {
    const bench::RandomBackward draw(seed, space);
    if (draw.problem().q.shape[static_cast<size_t>(draw.problem().q.rank) - 1] > 8) continue;
    Result<HostBackward> made = draw.fill();
    ASSERT_TRUE(made.ok()) << made.status().message();
    HostBackward& host = *made;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " +
                 bench::describe(draw.problem(), draw.gradients()));
    forget_padding(host);
    HostProblem& inputs = host.forward;
    for (const char* const name : {"q", "k", "v", "bias", "sinks", "alibi_slopes"}) {
      if (inputs.has(name)) coarsen(inputs.at(name));
    }
    const auto gradients = exact_gradients(host);
    for (const auto& [name, gradient] : gradients) {
      const std::string input = name.substr(name.starts_with("d_") ? 2 : 1);
      if (inputs.at(input).desc().dtype != DType::f32) continue;  // a step would be rounded
      for (int64_t i = 0; i < gradient.elements(); ++i) {
        if (!std::isfinite(inputs.at(input).get(i))) {  // a bias of -inf, or an unused element
          EXPECT_EQ(gradient.get(i), 0) << name << ' ' << i;
          continue;
        }
        const Real want = difference(host, inputs, input, i);
        ASSERT_NEAR(gradient.get(i), static_cast<double>(want),
                    2e-6 * (1 + std::abs(static_cast<double>(want))))
            << name << ' ' << i;
      }
    }
    ++compared;
    const std::optional<TensorDesc>& bias = draw.problem().bias;
    with_bias += gradients.contains("d_bias") && bias->dtype == DType::f32 ? 1 : 0;
    with_sinks += gradients.contains("d_sinks") ? 1 : 0;
    with_slopes += gradients.contains("d_alibi_slopes") ? 1 : 0;
  }
  const int enough = kSanitized ? 0 : 2;
  EXPECT_GT(with_bias, enough);
  EXPECT_GT(with_sinks, enough);
  EXPECT_GT(with_slopes, enough);
}

Problem small_problem() {
  Problem problem;
  problem.q = TensorDesc::contiguous(DType::f32, {2, 4, 6, 8});
  problem.k = TensorDesc::contiguous(DType::f32, {2, 2, 7, 8});
  problem.v = TensorDesc::contiguous(DType::f32, {2, 2, 7, 5});
  problem.o = TensorDesc::contiguous(DType::f32, {2, 4, 6, 5});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 6});
  return problem;
}

HostBackward filled(const Problem& problem, uint64_t seed = 1) {
  Result<HostBackward> host = bench::make_host_backward(bench::make_host_problem(problem, seed),
                                                        bench::gradients_of(problem, true), seed);
  EXPECT_TRUE(host.ok()) << host.status().message();
  return std::move(*host);
}

TEST(ReferenceBackward, ThreadsDoNotChangeBits) {
  Problem problem = small_problem();
  problem.bias = TensorDesc::contiguous(DType::f32, {1, 4, 1, 7});
  problem.sinks = TensorDesc::contiguous(DType::f32, {4});
  HostBackward host = filled(problem);
  const auto one = exact_gradients(host, 1), three = exact_gradients(host, 3);
  for (const auto& [name, tensor] : one) {
    EXPECT_TRUE(tensor.same_elements(three.find(name)->second)) << name;
  }
}

// Causal, with three keys fewer than queries: the first three rows see none.
TEST(ReferenceBackward, RowsThatSeeNoKeyHaveNoGradientButTheirSinks) {
  Problem problem = small_problem();
  problem.k.shape[2] = problem.v.shape[2] = 3;
  problem.causal = true;
  problem.sinks = TensorDesc::contiguous(DType::f32, {4});
  HostBackward host = filled(problem);
  auto before = exact_gradients(host);
  for (int64_t bh = 0; bh < 8; ++bh) {
    for (int64_t n = 0; n < 3 * 5; ++n) host.at("d_o").set(bh * 30 + n, kNaN);
  }
  auto after = exact_gradients(host);
  for (const auto& [name, tensor] : before) {
    EXPECT_TRUE(tensor.same_elements(after.find(name)->second)) << name;
  }
  for (int64_t bh = 0; bh < 8; ++bh) {
    for (int64_t n = 0; n < 3 * 8; ++n) EXPECT_EQ(after.find("dq")->second.get(bh * 48 + n), 0);
  }
  // Their LSE is the sink: its gradient flows into the sink.
  const double want = after.find("d_sinks")->second.get(1) + 2;
  HostTensor& d_lse = host.at("d_lse");
  const double value = d_lse.get(6);  // head 1, row 0
  d_lse.set(6, value + 2);
  EXPECT_NEAR(exact_gradients(host).find("d_sinks")->second.get(1), want, 1e-6);
}

TEST(ReferenceBackward, WhatIsNotVisibleLeavesNoTrace) {
  Problem problem = small_problem();
  problem.seqlens_kv = problem.seqlens_q = TensorDesc::contiguous(DType::i32, {2});
  problem.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 7});
  HostBackward host = filled(problem);
  HostProblem& forward = host.forward;
  forward.at("seqlens_kv").fill([] { return 5.0; });
  forward.at("seqlens_q").fill([] { return 4.0; });
  forward.at("mask").fill([n = 0]() mutable { return n++ == 2 ? 0.0 : 1.0; });
  const auto before = exact_gradients(host);
  const auto hide = [](HostTensor& tensor, int64_t rows, int64_t width, auto hidden) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      if (hidden(i / width % rows)) tensor.set(i, kNaN);
    }
  };
  const auto hidden_key = [](int64_t j) { return j == 2 || j >= 5; };
  const auto hidden_query = [](int64_t i) { return i >= 4; };
  hide(forward.at("k"), 7, 8, hidden_key);
  hide(forward.at("v"), 7, 5, hidden_key);
  hide(forward.at("q"), 6, 8, hidden_query);
  hide(host.at("d_o"), 6, 5, hidden_query);
  hide(host.at("d_lse"), 6, 1, hidden_query);
  const auto after = exact_gradients(host);
  for (const auto& [name, tensor] : before) {
    const HostTensor& now = after.find(name)->second;
    EXPECT_TRUE(tensor.same_elements(now)) << name;
    const bool of_keys = name == "dk" || name == "dv";
    const int64_t width = name == "dv" ? 5 : 8, rows = of_keys ? 7 : 6;
    for (int64_t i = 0; i < now.elements(); ++i) {
      const int64_t row = i / width % rows;
      const bool is_hidden = of_keys ? hidden_key(row) : hidden_query(row);
      const double value = now.get(i);
      ASSERT_TRUE(is_hidden ? value == 0 : std::isfinite(value)) << name << ' ' << i;
    }
  }
}

// One NaN key affects the rows that see it, and the gradients of everything that these rows see.
TEST(ReferenceBackward, NanSpreadsOnlyWhereItIsSeen) {
  Problem problem = small_problem();
  problem.q.shape[2] = problem.o.shape[2] = problem.lse->shape[2] = 7;
  problem.q = TensorDesc::contiguous(DType::f32, {2, 4, 7, 8});
  problem.o = TensorDesc::contiguous(DType::f32, {2, 4, 7, 5});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 7});
  problem.causal = true;
  problem.window_left = 1;
  HostBackward host = filled(problem);
  host.forward.at("k").set(3 * 8 + 1, kNaN);  // entry 0, head 0, key 3: rows 3 and 4 see it
  const auto gradients = exact_gradients(host);
  const auto is_nan = [&](const char* name, int64_t i) {
    return std::isnan(gradients.find(name)->second.get(i));
  };
  for (int64_t row = 0; row < 7; ++row) {
    const bool spoiled_query = row == 3 || row == 4, spoiled_key = row >= 2 && row <= 4;
    EXPECT_EQ(is_nan("dq", row * 8), spoiled_query) << row;
    EXPECT_EQ(is_nan("dk", row * 8), spoiled_key) << row;
    EXPECT_EQ(is_nan("dv", row * 5), spoiled_key) << row;
    EXPECT_FALSE(is_nan("dq", (2 * 7 + row) * 8)) << "of another KV head, row " << row;
    EXPECT_FALSE(is_nan("dk", (7 + row) * 8)) << "of another KV head, key " << row;
  }
}

TEST(ReferenceBackward, DropoutFromMemoryIsThatOfTheNumbers) {
  Problem problem = small_problem();
  problem.dropout_p = 0.4F;
  HostBackward numbers = filled(problem, 7);
  problem.dropout_state = TensorDesc::contiguous(DType::i64, {2});
  HostBackward memory = filled(problem, 7);
  EXPECT_TRUE(memory.forward.at("o").same_elements(numbers.forward.at("o")));
  memory.forward.dropout_seed += 1;  // it is not read
  const auto a = exact_gradients(numbers), b = exact_gradients(memory);
  for (const auto& [name, tensor] : a) {
    EXPECT_TRUE(tensor.same_elements(b.find(name)->second)) << name;
  }
  memory.forward.dropout_seed += 1;
  bench::fill_dropout_state(memory.forward);
  EXPECT_FALSE(exact_gradients(memory).find("dv")->second.same_elements(b.find("dv")->second));
}

// The naive computation equals the reference, except for rounding to its type.
TEST(ReferenceBackward, NaiveRoundsToTheTypeOfTheInputs) {
  for (const auto& [dtype, unit] : {std::pair{DType::f32, 0x1p-24}, std::pair{DType::f16, 0x1p-11},
                                    std::pair{DType::bf16, 0x1p-8}}) {
    Problem problem = small_problem();
    for (TensorDesc* const tensor : {&problem.q, &problem.k, &problem.v, &problem.o}) {
      tensor->dtype = dtype;
    }
    HostBackward host = filled(problem);
    const auto right = exact_gradients(host), naive = exact_gradients(host, 0, "naive");
    for (const char* const name : {"dq", "dk", "dv"}) {
      double error = 0, norm = 0;
      const HostTensor& a = right.find(name)->second;
      for (int64_t i = 0; i < a.elements(); ++i) {
        error += std::pow(a.get(i) - naive.find(name)->second.get(i), 2);
        norm += std::pow(a.get(i), 2);
      }
      const double relative = std::sqrt(error / norm);
      EXPECT_LT(relative, 4 * unit) << name << ' ' << to_string(dtype);
      EXPECT_GT(relative, unit / 16) << name << ' ' << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace flashcore
