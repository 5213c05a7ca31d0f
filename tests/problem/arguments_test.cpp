// Checks of one run's data. For every refusal, the message names the argument, the value and what
// is wanted, and no output has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "problem/memory.hpp"
#include "problem/operands.hpp"
#include "problem/problem.hpp"
#include "tests/problem/problems.hpp"
#include "tests/problem/run_plan.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

template <class T>
T* shifted(T* pointer, std::ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + static_cast<uintptr_t>(bytes));
}

class Trial {
 public:
  explicit Trial(const Problem& problem) : host_(bench::make_host_problem(problem, 1)) {
    args_ = host_.arguments();
  }

  bench::HostProblem& host() { return host_; }
  Arguments& args() { return args_; }

  Status run() { return run_plan(make_plan(host_.problem), args_); }

  void expect_refused(const std::string& argument, const std::string& value,
                      const std::string& wanted) {
    const Status status = run();
    ASSERT_EQ(status.code(), StatusCode::invalid_argument) << argument << ' ' << value;
    const std::string& message = status.message();
    EXPECT_THAT(message, StartsWith(argument + ":"));
    EXPECT_THAT(message, HasSubstr(value));
    const size_t at = message.find("wanted");
    ASSERT_NE(at, std::string::npos) << message;
    EXPECT_THAT(message.substr(at), HasSubstr(wanted));
    for (const char* const name : {"o", "lse", "amax_o", "amax_s", "max_logit"}) {
      if (!host_.has(name)) continue;
      for (const std::byte byte : host_.at(name).memory()) {
        ASSERT_EQ(byte, std::byte{0xFF}) << name << " was written";
      }
    }
  }

 private:
  bench::HostProblem host_;
  Arguments args_;
};

// Every pointer of Arguments by name, null and misaligned.
struct PointerBend {
  std::string name;
  std::function<void(Arguments&)> clear;
  std::function<void(Arguments&, std::ptrdiff_t)> shift;
};

std::vector<PointerBend> pointer_bends() {
  std::vector<PointerBend> bends;
  for (const auto& line : kOperands<Problem>) {
    bends.push_back({std::string(line.name), [&](Arguments& args) { line.bind(args, nullptr); },
                     [&](Arguments& args, std::ptrdiff_t bytes) {
                       line.bind(args, shifted(const_cast<void*>(line.data(args)), bytes));
                     }});
  }
  return bends;
}

TEST(Pointers, ValidRunsPass) {
  for (const Problem& problem : {dense_problem(), packed_problem(), full_problem()}) {
    EXPECT_TRUE(Trial(problem).run().ok()) << Trial(problem).run().message();
  }
}

TEST(Pointers, NullIsRefusedForEachTensorOfTheProblem) {
  for (const Problem& problem : {dense_problem(), packed_problem(), full_problem()}) {
    const bench::HostProblem host = bench::allocate(problem);
    for (const PointerBend& bend : pointer_bends()) {
      Trial trial(problem);
      bend.clear(trial.args());
      if (host.has(bend.name)) {
        trial.expect_refused(bend.name, "null", "data of a tensor");
      } else {
        EXPECT_TRUE(trial.run().ok()) << bend.name;
      }
    }
  }
}

TEST(Pointers, MisalignedIsRefusedForEachType) {
  Problem full = full_problem();
  full.o = TensorDesc::contiguous(DType::f16, {2, 4, 3, 6});
  full.o_scale.reset();
  for (const Problem& problem :
       {dense_problem(), dense_problem(DType::bf16), packed_problem(), full}) {
    for (const PointerBend& bend : pointer_bends()) {
      Trial trial(problem);
      if (!trial.host().has(bend.name)) continue;
      const auto size =
          static_cast<std::ptrdiff_t>(size_of(trial.host().at(bend.name).desc().dtype));
      for (std::ptrdiff_t bytes = 1; bytes < size; ++bytes) {
        Trial bent(problem);
        bend.shift(bent.args(), bytes);
        bent.expect_refused(bend.name, "not aligned", "multiple of " + std::to_string(size));
      }
    }
  }
}

TEST(Pointers, WhatTheProblemDoesNotHaveIsIgnored) {
  Problem problem = dense_problem();
  problem.lse.reset();
  bench::HostProblem host = bench::make_host_problem(problem, 1);
  Arguments args = host.arguments();
  args.lse = args.o;  // would overlap
  args.bias = shifted(static_cast<const char*>(args.o), 1);
  args.sinks = shifted(static_cast<const float*>(args.o), 3);
  const Status status = run_plan(make_plan(problem), args);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Pointers, NothingIsNeededForTensorsWithoutElements) {
  Problem problem;
  problem.q = TensorDesc::contiguous(DType::f32, {2, 4, 0, 8});
  problem.k = TensorDesc::contiguous(DType::f32, {2, 2, 0, 8});
  problem.v = TensorDesc::contiguous(DType::f32, {2, 2, 0, 6});
  problem.o = TensorDesc::contiguous(DType::f32, {2, 4, 0, 6});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 0});
  problem.bias = TensorDesc::contiguous(DType::f32, {2, 4, 0, 0});
  EXPECT_TRUE(run_plan(make_plan(problem), {}).ok()) << run_plan(make_plan(problem), {}).message();
  float dummy = 7;  // sharing one pointer is no overlap here
  Arguments args;
  args.q = args.k = args.v = args.bias = &dummy;
  args.o = args.lse = &dummy;
  EXPECT_TRUE(run_plan(make_plan(problem), args).ok())
      << run_plan(make_plan(problem), args).message();
  EXPECT_EQ(dummy, 7);
}

TEST(Outputs, MustNotBeAnInputOrEachOther) {
  const Problem problem = full_problem();
  // In checking order.
  const std::vector<std::string> outputs = {"o", "lse", "amax_o", "amax_s", "max_logit"};
  for (const std::string& output : outputs) {
    for (const PointerBend& bend : pointer_bends()) {
      const std::string name = bend.name;
      if (name == output) continue;
      // Room for the larger tensor, so that only the address is wrong.
      alignas(256) std::vector<float> shared(1024);
      Trial trial(problem);
      if (!trial.host().has(name)) continue;
      trial.args() = bench::bind(problem, [&](std::string_view tensor) -> void* {
        return tensor == name || tensor == output ? static_cast<void*>(shared.data())
                                                  : trial.host().at(tensor).data();
      });
      // The message names the first of two outputs.
      const auto first = std::find_if(outputs.begin(), outputs.end(), [&](const std::string& one) {
        return one == name || one == output;
      });
      trial.expect_refused(*first, *first == output ? name : output, "memory of its own");
    }
  }
}

TEST(Outputs, MustNotOverlapInPart) {
  Problem problem = dense_problem();
  std::vector<float> memory(4096);
  Trial trial(problem);
  const auto at = [&](int64_t element) { return memory.data() + element; };
  trial.args().o = at(1000);                   // 144 elements
  for (const int64_t q : {809, 1000, 1143}) {  // 192 elements
    trial.args().q = at(q);
    trial.expect_refused("o", "q", "memory of its own");
  }
  for (const int64_t q : {808, 1144}) {  // adjacent
    trial.args().q = at(q);
    EXPECT_TRUE(trial.run().ok()) << trial.run().message();
  }
}

TEST(Outputs, MustNotOverlapWhenReversed) {
  Problem problem = dense_problem();
  problem.o = TensorDesc::strided(DType::f32, {2, 4, 3, 6}, {-72, -18, -6, 1});
  std::vector<float> memory(4096);
  Trial trial(problem);
  trial.args().o = memory.data() + 1138;            // elements 1000 to 1143
  for (const int64_t q : {809, 900, 1000, 1143}) {  // 192 elements
    trial.args().q = memory.data() + q;
    trial.expect_refused("o", "q", "memory of its own");
  }
  for (const int64_t q : {808, 1144}) {
    trial.args().q = memory.data() + q;
    EXPECT_TRUE(trial.run().ok()) << trial.run().message();
  }
}

TEST(Outputs, MayBeWovenIntoAFusedBuffer) {
  // Rows of [q | k | v | o] in one buffer: ranges overlap, elements do not.
  Problem problem;
  problem.q = problem.k = problem.v = problem.o =
      TensorDesc::strided(DType::f32, {1, 1, 6, 4}, {96, 96, 16, 1});
  std::vector<float> memory(128, 0.5f);
  Arguments args;
  args.q = memory.data(), args.k = memory.data() + 4, args.v = memory.data() + 8;
  args.o = memory.data() + 12;
  const Status status = run_plan(make_plan(problem), args);
  EXPECT_TRUE(status.ok()) << status.message();
  std::fill(memory.begin(), memory.end(), 0.5f);
  // On v, on its last columns, and one row below.
  for (const int64_t element : {8, 10, 16 + 8}) {
    args.o = memory.data() + element;
    EXPECT_THAT(run_plan(make_plan(problem), args).message(),
                HasSubstr("overlaps the memory of v"));
  }
  EXPECT_EQ(memory, std::vector<float>(128, 0.5f));
}

// Compares two tensors of random strides with the bytes of their elements.
TEST(Memory, IsSharedWhereElementsAre) {
  bench::Random random(3);
  constexpr uintptr_t kBase = 1 << 16;
  int shared = 0;
  for (int n = 0; n < 20000; ++n) {
    Footprint both[2];
    std::set<uintptr_t> bytes[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t size = random.pick<int64_t>({1, 2, 4});
      const uintptr_t origin = kBase + static_cast<uintptr_t>(size * random.integer(0, 20));
      Dimension shape[4];
      for (Dimension& d : shape) {
        d = {random.chance(0.02) ? 0 : random.integer(1, 4), random.integer(-30, 30)};
      }
      if (random.chance(0.5)) shape[3].stride = 1;
      both[i] = footprint(reinterpret_cast<const void*>(origin), static_cast<size_t>(size), shape);
      for (int64_t e = 0; e < 256; ++e) {
        int64_t at = 0, rest = e;
        bool is_element = true;
        for (const auto& [extent, stride] : shape) {
          at += rest % 4 * stride;
          is_element = is_element && rest % 4 < extent;
          rest /= 4;
        }
        for (int64_t b = 0; is_element && b < size; ++b) {
          bytes[i].insert(origin + static_cast<uintptr_t>(at * size + b));
        }
      }
    }
    const bool want = std::any_of(bytes[0].begin(), bytes[0].end(),
                                  [&](uintptr_t byte) { return bytes[1].contains(byte); });
    ASSERT_EQ(share_memory(both[0], both[1]), want) << n;
    ASSERT_EQ(share_memory(both[1], both[0]), want) << n;
    shared += want ? 1 : 0;
  }
  EXPECT_GT(shared, 2000);
  EXPECT_LT(shared, 18000);
}

// Large, like views of one buffer; and strides so unrelated that the search gives up.
TEST(Memory, IsSharedWhereThatCannotBeRuledOut) {
  const auto at = [](uintptr_t address, int64_t rows, int64_t stride, int64_t width) {
    const Dimension shape[] = {{rows, 1 << 20}, {1 << 10, stride}, {width, 1}};
    return footprint(reinterpret_cast<const void*>(uintptr_t{1} << 20 | address), 4, shape);
  };
  const Footprint k = at(0, 1 << 20, 1024, 576);
  EXPECT_TRUE(share_memory(k, at(4 * 1024, 1 << 20, 1024, 512)));
  EXPECT_TRUE(share_memory(k, at(4 * 575, 1 << 20, 1024, 64)));
  EXPECT_FALSE(share_memory(k, at(4 * 576, 1 << 20, 1024, 448)));
  EXPECT_TRUE(share_memory(k, at(4 * 576, 1 << 20, 1024, 449)));
  const Dimension even[] = {{1 << 30, 1000}}, odd[] = {{1 << 30, 998}};
  EXPECT_TRUE(share_memory(footprint(reinterpret_cast<const void*>(4096), 4, even),
                           footprint(reinterpret_cast<const void*>(4100), 4, odd)));
}

TEST(Scales, OfOAreReadBeforeTheRun) {
  for (const double value : {0.0, -2.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    Trial trial(full_problem());
    trial.host().at("o_scale").set(6, value);
    trial.expect_refused("o_scale", "element [1, 2] is ", "a positive finite number");
  }
  // A broadcast needs few pages, and without rows none is read.
  Problem one = full_problem();
  one.o_scale = TensorDesc::strided(DType::f32, {1, 4}, {1, 2});
  Trial broadcast(one);
  EXPECT_TRUE(broadcast.run().ok()) << broadcast.run().message();
  Trial zero(one);
  zero.host().at("o_scale").set(3, 0);
  zero.expect_refused("o_scale", "element [0, 3] is 0", "a positive finite number");
}

TEST(Lengths, OutOfRange) {
  for (const auto& [name, largest] :
       {std::pair<const char*, int>{"seqlens_q", 3}, {"seqlens_kv", 5}}) {
    for (const double value : {-1.0, largest + 1.0, 2147483647.0, -2147483648.0}) {
      Trial trial(full_problem());
      trial.host().at(name).set(1, value);
      trial.expect_refused(name, "entry 1 is " + std::to_string(static_cast<int64_t>(value)),
                           "0 to " + std::to_string(largest));
    }
    for (const int value : {0, 1, largest}) {
      Trial trial(full_problem());
      trial.host().at(name).set(1, value);
      EXPECT_TRUE(trial.run().ok()) << trial.run().message();
    }
  }
}

TEST(Lengths, CumulativeOnesAreWrong) {
  for (const auto& [name, total] :
       {std::pair<std::string, int>{"cu_seqlens_q", 7}, {"cu_seqlens_kv", 9}}) {
    const std::string all = std::to_string(total);
    const auto refused = [&, &name = name](std::vector<double> entries, const std::string& value,
                                           const std::string& wanted) {
      Trial trial(packed_problem());
      for (size_t i = 0; i < entries.size(); ++i) {
        trial.host().at(name).set(static_cast<int64_t>(i), entries[i]);
      }
      trial.expect_refused(name, value, wanted);
    };
    const double last = total;
    refused({1, 3, last}, "first entry is 1", "0");
    refused({-1, 3, last}, "first entry is -1", "0");
    refused({0, -1, last}, "entry 1 is -1 after 0", "0 to");
    refused({0, last, last - 1}, "entry 2 is " + std::to_string(total - 1), all);
    refused({0, 3, last - 1}, "last entry is " + std::to_string(total - 1), all);
    refused({0, last + 1, last}, "entry 1 is " + std::to_string(total + 1), "0 to " + all);
    refused({0, 2147483647, last}, "entry 1 is 2147483647", "0 to " + all);
    refused({0, -2147483648.0, last}, "entry 1 is -2147483648", "0 to " + all);
    for (const double middle : {0.0, 1.0, last}) {
      Trial trial(packed_problem());
      trial.host().at(name).set(1, middle);
      EXPECT_TRUE(trial.run().ok()) << trial.run().message();
    }
  }
}

TEST(Lengths, EntriesAreBoundedByTheLongest) {
  Problem problem = packed_problem();
  problem.max_seqlen_q = 4;
  problem.max_seqlen_kv = 5;
  Trial trial(problem);  // 3 and 4 of 7, 4 and 5 of 9
  EXPECT_TRUE(trial.run().ok()) << trial.run().message();
  Trial bent(problem);
  bent.host().at("cu_seqlens_q").set(1, 2);
  bent.expect_refused("cu_seqlens_q", "entry 2 is 7 after 2", "2 to 6");
}

TEST(Lengths, PackedWithoutEntriesHasNoRows) {
  Problem problem = packed_problem();
  problem.cu_seqlens_q = problem.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {1});
  Trial trial(problem);
  trial.expect_refused("cu_seqlens_q", "last entry is 0", "7");
}

TEST(Sequences, LengthsAndOffsetsOfEntries) {
  Problem problem = packed_problem();
  problem.seqlens_q = problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  bench::HostProblem host = bench::make_host_problem(problem, 1);
  const auto fill = [&](const char* name, std::vector<double> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      host.at(name).set(static_cast<int64_t>(i), values[i]);
    }
  };
  fill("cu_seqlens_q", {0, 2, 7});
  fill("cu_seqlens_kv", {0, 6, 9});
  fill("seqlens_q", {2, 4});
  fill("seqlens_kv", {5, 9});  // more than the entry's 3
  const Result<ForwardProblem> p = resolve(host.problem);
  ASSERT_TRUE(p.ok());
  const Sequence s0 = sequence_of(*p, host.arguments(), 0);
  const Sequence s1 = sequence_of(*p, host.arguments(), 1);
  EXPECT_EQ(s0.q_begin, 0);
  EXPECT_EQ(s1.q_begin, 2);
  EXPECT_EQ(s1.kv_begin, 6);
  EXPECT_EQ(s1.rows_q, 5);
  EXPECT_EQ(s1.len_q, 4);
  EXPECT_EQ(s0.len_kv, 5);
  EXPECT_EQ(s1.len_kv, 3);
  EXPECT_EQ(s0.offset, 3);  // bottom right, of the lengths in use
  EXPECT_EQ(s1.offset, -1);
}

}  // namespace
}  // namespace flashcore
