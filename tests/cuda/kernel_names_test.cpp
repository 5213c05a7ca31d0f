// Names of kernels and variants, as callers write them, on a GPU that only writes launches down.
#include "plan/kernel_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "plan/table.hpp"
#include "tools/launches/fake_runtime.hpp"

namespace flashcore {
namespace {

using testing::HasSubstr;

class KernelNames : public testing::Test {
 protected:
  KernelNames() {
    unsetenv("FLASHCORE_KERNEL");
    fake::forget();
    fake::use({90, 132, 227 * 1024});
    fake::have_devices(2);
  }
  ~KernelNames() override { fake::forget(); }
};

Problem dense(DType dtype, int64_t seqlen_q, int64_t seqlen_kv, int64_t head_dim = 128) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {2, 8, seqlen_q, head_dim});
  problem.k = problem.v = TensorDesc::contiguous(dtype, {2, 8, seqlen_kv, head_dim});
  problem.o = problem.q;
  if (dtype == DType::f8e4m3) problem.o.dtype = DType::f16;
  return problem;
}

TEST_F(KernelNames, FormerNamesAreNoKernelsAndThoseInTheirPlaceAre) {
  const auto is_name = [](const std::string& name) {
    return std::any_of(variants().begin(), variants().end(), [&](const Variant& one) {
      return one.name == name || kernel_part(one.name) == name;
    });
  };
  const std::set<std::string> configs = {"192x128", "64x128", "64x64"};
  for (const auto& [former, now] : former_names()) {
    EXPECT_FALSE(is_name(std::string(former))) << former;
    const AskedName asked = asked_name(former);
    EXPECT_TRUE(is_name(asked.name)) << former;
    EXPECT_EQ(with_config(asked.name, asked.config), now);
    EXPECT_TRUE(asked.config.empty() || configs.contains(asked.config)) << former;
    EXPECT_EQ(present_name(now), now) << "is a former name itself";
    EXPECT_EQ(present_name(std::string(former) + ":warps=4"), std::string(now) + ":warps=4");
  }
  EXPECT_EQ(present_name("forward_sm90_new"), "forward_sm90_new");
}

TEST_F(KernelNames, TheVariantsOfAKernelFollowEachOther) {
  std::set<std::string_view> names;
  size_t count = 0;
  int on_gpu = 0;
  for (const Kernel& kernel : kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is there twice";
    const bool is_rung = kernel.name.front() >= '0' && kernel.name.front() <= '9';
    on_gpu += kernel.variants.front().device == DeviceKind::cuda && !is_rung ? 1 : 0;
    for (const Variant& variant : kernel.variants) {
      EXPECT_EQ(kernel_part(variant.name), kernel.name);
      EXPECT_EQ(find_variant(variant.name), &variant);
      ++count;
    }
  }
  EXPECT_EQ(count, variants().size());
  EXPECT_LE(on_gpu, 12);
}

TEST_F(KernelNames, AKernelsNameIsItsPlainVariantsUnlessTheProblemIsForAnother) {
  PlanOptions options;
  options.device = {DeviceKind::cuda, 0};
  const auto runs = [&](const std::string& kernel, const Problem& problem) {
    options.kernel = kernel;
    const Result<Plan> plan = make_plan(problem, options);
    return plan.ok() ? std::string(plan->kernel()) : plan.status().message();
  };
  const Problem plain = dense(DType::f16, 300, 300, 64);
  EXPECT_EQ(runs("forward_sm80_throughput", plain), "forward_sm80_throughput");
  for (const char* const config : {"192x128", "64x128", "64x64"}) {
    EXPECT_EQ(runs(with_config("forward_sm90_throughput", config), plain),
              "forward_sm90_throughput");
    EXPECT_EQ(runs(std::string("forward_sm90_") + config, plain), "forward_sm90_throughput");
  }
  EXPECT_EQ(runs("forward_sm90_192x128", dense(DType::f16, 300, 300)),
            "kernel forward_sm90_throughput: config is '192x128', wanted none: it has one way to "
            "compute this problem");
  Problem paged = plain;
  paged.k = paged.v = TensorDesc::contiguous(DType::f16, {20, 8, 64, 64});
  paged.page_table = TensorDesc::contiguous(DType::i32, {2, 5});
  EXPECT_EQ(runs("forward_sm90_throughput", paged), "forward_sm90_throughput:paged");
  EXPECT_EQ(runs("forward_sm80_throughput", paged), "forward_sm80_throughput:paged");
  EXPECT_EQ(runs("forward_sm80_paged", paged), "forward_sm80_throughput:paged");
  EXPECT_THAT(runs("forward_sm80_throughput:paged", plain), HasSubstr("page_table: is not given"));
  paged.softcap = 30;
  EXPECT_EQ(runs("forward_sm80_throughput", paged),
            "kernel forward_sm80_throughput:paged: softcap: is 30, wanted 0");
  EXPECT_THAT(runs("forward_sm80_throughput", dense(DType::f32, 300, 300)),
              HasSubstr("kernel forward_sm80_throughput: q: dtype is f32"));
  Problem mixed = dense(DType::f8e4m3, 300, 300);
  EXPECT_EQ(runs("forward_converted", mixed), "forward_converted:fp8");
  mixed.v = TensorDesc::contiguous(DType::f8e4m3, {2, 8, 128, 384});
  mixed.v_transposed = true;
  EXPECT_EQ(runs("forward_converted", mixed), "forward_converted:v_rows");
}

}  // namespace
}  // namespace flashcore
