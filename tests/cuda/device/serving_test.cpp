// Merge and append on a GPU: what they do on the CPU, and that no length in device memory makes them write
// elsewhere.
#include "flashcore/serving.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "bench/cases/random_layout.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "flashcore/quantize.hpp"
#include "problem/transposed.hpp"
#include "tests/cpu/serving_suite.hpp"
#include "tests/cuda/device/device_tensors.hpp"
#include "tests/cuda/device/gpu.hpp"

namespace flashcore {
namespace {

using bench::HostTensor;
using bench::Random;
using testing::expect_appended;
using testing::i32;
using testing::random_append;
using testing::random_merge;
using testing::Sizes;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const Device kGpu = first_gpu();

template <class Case>
auto moved(const DeviceTensors& device, Case& one) {
  return one.arguments([&](HostTensor& host) { return device.there(one.tensors, host.data()); });
}

struct OnGpu {
  static constexpr Draws kMerges{17, 60}, kAppends{31, 150}, kColumns{41, 25};
  static constexpr int kWrongPages = 0;
  static std::string missing() { return capability() == 0 ? "no GPU" : ""; }
  static Status run(MergeCase& one) {
    return run_on_copies(one, [](const auto&... all) { return merge(all...); });
  }
  static Status run(AppendCase& one) {
    return run_on_copies(one, [](const auto&... all) { return append(all...); });
  }

 private:
  template <class Case, class Call>
  static Status run_on_copies(Case& one, const Call& call) {
    const DeviceTensors device(one.tensors);
    const Status status = call(one.what, moved(device, one), on_gpu(""));
    if (status.ok()) device.download_outputs(one.tensors);
    return status;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, Serving, OnGpu);

class ServingOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (capability() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(ServingOnGpu, MergesInPlace) {
  Random random(29);
  MergeCase one = random_merge(random);
  while (one.what.o.dtype != one.what.o_a.dtype || !one.what.lse || one.at("o").elements() == 0) {
    one = random_merge(random);
  }
  MergeCase apart = one;
  one.what.o = one.what.o_a;
  const DeviceTensors device(one.tensors);
  MergeArguments args = moved(device, one);
  args.o = const_cast<void*>(args.o_a);
  args.lse = const_cast<float*>(args.lse_a);
  const Status status = merge(one.what, args, on_gpu(""));
  ASSERT_TRUE(status.ok()) << status.message();
  device.download_outputs(one.tensors);
  ASSERT_TRUE(OnGpu::run(apart).ok());
  for (int64_t i = 0; i < apart.at("o").elements(); ++i) {
    const double in_place = one.at("o_a").get(i), wanted = apart.at("o").get(i);
    EXPECT_TRUE(in_place == wanted || (std::isnan(in_place) && std::isnan(wanted))) << i;
  }
  EXPECT_TRUE(one.at("lse_a").same_elements(apart.at("lse")));
}

// As on the CPU, whatever the layouts: gaps, rows that do not begin at multiples of 16 bytes, heads inside
// of rows.
TEST_F(ServingOnGpu, TransposesV) {
  Random random(53);
  for (int n = 0; n < 30; ++n) {
    const int64_t batch = random.integer(1, 2), heads = random.integer(1, 3);
    const int64_t rows = random.integer(1, 300);
    const int64_t width = random.chance(0.5) ? 16 * random.integer(1, 9) : random.integer(1, 140);
    const bool aligned = random.chance(0.5);
    const TensorDesc v =
        bench::random_layout(random, DType::f8e4m3, batch, heads, rows, width, aligned);
    const TensorDesc out = bench::random_layout(random, DType::f8e4m3, batch, heads, width,
                                                columns_of_keys(rows), aligned);
    std::map<std::string, HostTensor> tensors;
    tensors.emplace("v", HostTensor(v)).first->second.fill([&] { return random.normal(); });
    tensors.emplace("v_out", HostTensor(out)).first->second.poison();
    HostTensor want = tensors.at("v_out");
    ASSERT_TRUE(transpose_v(v, tensors.at("v").data(), out, want.data()).ok());
    const DeviceTensors device(tensors);
    const Status status =
        transpose_v(v, device.there(tensors, tensors.at("v").data()), out,
                    device.there(tensors, tensors.at("v_out").data()), on_gpu(""));
    ASSERT_TRUE(status.ok()) << n << ' ' << status.message();
    device.download_outputs(tensors);
    EXPECT_TRUE(tensors.at("v_out").same_elements(want)) << n;
    EXPECT_TRUE(tensors.at("v_out").canaries_intact()) << n;
  }
}

// Where rows fill the GPU, each is a warp's.
TEST_F(ServingOnGpu, AppendsManyRows) {
  int multiprocessors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, kGpu.index),
            cudaSuccess);
  Random random(43);
  for (int n = 0; n < 6; ++n) {
    Sizes s{};
    AppendCase one = random_append(random, s, int64_t{32} * multiprocessors);
    AppendCase before = one;
    const Status status = OnGpu::run(one);
    ASSERT_TRUE(status.ok()) << n << ' ' << status.message();
    expect_appended(before, one, s, fmt::format("case {}", n));
  }
}

// The host cannot see lengths there: what they allow is written, and nothing else.
TEST_F(ServingOnGpu, LengthsThatDoNotFitWriteNothing) {
  Random random(37);
  for (int n = 0; n < 60; ++n) {
    Sizes s{};
    AppendCase one = random_append(random, s);
    while (!one.has("page_status") && s.paged) one = random_append(random, s);
    HostTensor& lengths = one.at("seqlens_kv");
    const auto wild = [&] {
      return static_cast<double>(
          random.pick<int64_t>({-1, INT32_MIN, INT32_MAX, INT32_MAX - 2, 1 << 20}));
    };
    for (int64_t b = 0; b < s.batch; ++b) lengths.set(b, wild());
    for (const char* const name : {"seqlens_new", "cu_seqlens_new", "kv_indptr"}) {
      if (!one.has(name) || random.chance(0.5)) continue;
      for (int64_t i = 0; i < one.at(name).elements(); ++i) one.at(name).set(i, wild());
    }
    const AppendCase before = one;
    const Status status = OnGpu::run(one);
    ASSERT_TRUE(status.ok()) << n << ' ' << status.message();
    for (const char* const name : {"k", "v"}) {
      EXPECT_TRUE(one.at(name).same_elements(before.tensors.at(name))) << n << ' ' << name;
      EXPECT_TRUE(one.at(name).canaries_intact()) << n << ' ' << name;
    }
    if (!one.has("q_out")) continue;
    EXPECT_TRUE(one.at("q_out").canaries_intact()) << n;
    for (int64_t i = 0; i < one.at("q_out").elements(); ++i) {
      ASSERT_EQ(one.at("q_out").get(i), 0) << n << ", rotated query " << i;
    }
  }
}

// A step in one call is the two calls.
TEST_F(ServingOnGpu, AppendsAndAttends) {
  Random random(41);
  AppendCase one;
  Append& what = one.what;
  what.k_new = what.v_new = TensorDesc::contiguous(DType::bf16, {2, 2, 1, 64});
  what.k = what.v = TensorDesc::contiguous(DType::bf16, {2, 2, 150, 64});
  what.seqlens_kv = i32(2);
  what.rope_base = 10000;
  what.q = what.q_out = TensorDesc::contiguous(DType::bf16, {2, 4, 1, 64});
  for (const auto& [name, desc] : {std::pair{"k_new", what.k_new},
                                   {"v_new", what.v_new},
                                   {"k", what.k},
                                   {"v", what.v},
                                   {"q", *what.q}}) {
    one.add(name, desc).fill([&] { return random.normal(); });
  }
  one.add("q_out", *what.q_out);
  one.add("o", *what.q);
  for (const char* const name : {"seqlens_kv", "lengths"}) {
    const int after = name[0] == 'l' ? 1 : 0;
    HostTensor& lengths = one.add(name, what.seqlens_kv);
    lengths.set(0, 17 + after), lengths.set(1, 140 + after);
  }
  Problem problem;
  problem.q = problem.o = *what.q;
  problem.k = what.k;
  problem.v = what.v;
  problem.seqlens_kv = what.seqlens_kv;
  const auto step = [&](const Device& where, AppendCase& mine,
                        const DeviceTensors* device) -> Status {
    const auto place = [&](void* pointer) {
      return device == nullptr ? pointer : device->there(mine.tensors, pointer);
    };
    PlanOptions options;
    options.device = where;
    const Result<Plan> plan = make_plan(problem, options);
    if (!plan.ok()) return plan.status();
    Arguments args;
    args.q = place(mine.at("q_out").data());
    args.k = place(mine.at("k").data());
    args.v = place(mine.at("v").data());
    args.o = place(mine.at("o").data());
    args.seqlens_kv = static_cast<int32_t*>(place(mine.at("lengths").data()));
    const Workspace workspace(device == nullptr ? 0 : plan->workspace_bytes(), 0xff);
    const AppendArguments rows = device == nullptr ? mine.arguments() : moved(*device, mine);
    return append_and_attend(mine.what, rows, *plan, args, options, workspace.data(),
                             workspace.bytes());
  };
  AppendCase on_host = one;
  ASSERT_TRUE(step({DeviceKind::cpu, 0}, on_host, nullptr).ok());
  const DeviceTensors device(one.tensors);
  const Status status = step(kGpu, one, &device);
  ASSERT_TRUE(status.ok()) << status.message();
  device.download_outputs(one.tensors);
  for (const char* const name : {"k", "v", "q_out", "o"}) {
    for (int64_t i = 0; i < one.at(name).elements(); ++i) {
      const double want = on_host.at(name).get(i);
      ASSERT_NEAR(one.at(name).get(i), want, 0x1p-7 * std::max(1.0, std::abs(want)))
          << name << ' ' << i;
    }
  }
  // A plan of another device is refused before anything is written.
  PlanOptions on_cpu;
  const Result<Plan> other = make_plan(problem, on_cpu);
  ASSERT_TRUE(other.ok());
  Arguments args;
  const Status refused =
      append_and_attend(one.what, moved(device, one), *other, args, on_gpu(""), nullptr, 0);
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
  EXPECT_TRUE(refused.message().starts_with("plan: is for cpu:0, wanted")) << refused.message();
}

}  // namespace
}  // namespace flashcore
