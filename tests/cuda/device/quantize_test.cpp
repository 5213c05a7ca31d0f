// Quantisation on a GPU, or on each of the simulator's, against its definition: bit for bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/device/quantizer.hpp"
#include "plan/device.hpp"
#include "tests/cpu/quantize_case.hpp"

namespace flashcore {
namespace {

using testing::QuantizeCase;

std::vector<PlanOptions> gpus() {
  std::vector<PlanOptions> all;
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind == DeviceKind::cpu) continue;
    all.emplace_back().device = info.device;
  }
  return all;
}

Status run(QuantizeCase& one, const PlanOptions& options) {
  const auto tensor = [&](const char* name) {
    return one.tensors.contains(name) ? &one.at(name) : nullptr;
  };
  return bench::quantizer_on(options)(one.what, {.x = one.at("x"),
                                                 .x_out = one.at("x_out"),
                                                 .scale = one.at("scale"),
                                                 .mean = tensor("mean"),
                                                 .cu_seqlens = tensor("cu_seqlens"),
                                                 .seqlens = tensor("seqlens")});
}

TEST(QuantizeOnGpu, IsItsDefinition) {
  const std::vector<PlanOptions> all = gpus();
  if (all.empty()) GTEST_SKIP() << "no GPU";
  const bool simulated = all[0].device.kind == DeviceKind::sim;
  for (uint64_t seed = 0; seed < (simulated ? 120 : 1000); ++seed) {
    seed_simulator(seed);
    bench::Random random(seed);
    QuantizeCase one = testing::random_quantize(random, seed % 9 == 0 ? 700 : 60);
    const PlanOptions& options = all[seed % all.size()];
    const std::string where = fmt::format("seed {}: {}", seed, one.text());
    const Status status = run(one, options);
    ASSERT_TRUE(status.ok()) << where << ": " << status.message();
    testing::expect_quantized(one, where);
    if (::testing::Test::HasFailure()) return;
  }
}

// Lengths that nobody checks never make a kernel read or write outside of the tensors.
TEST(QuantizeOnGpu, CutsLengthsToWhatThereIs) {
  const std::vector<PlanOptions> all = gpus();
  if (all.empty()) GTEST_SKIP() << "no GPU";
  for (uint64_t seed = 0; seed < 12; ++seed) {
    seed_simulator(seed);
    bench::Random random(seed);
    QuantizeCase one = testing::random_quantize(random, 40);
    for (const char* const name : {"cu_seqlens", "seqlens"}) {
      if (!one.tensors.contains(name)) continue;
      one.at(name).fill([&] { return static_cast<double>(random.integer(-1000, 2000000)); });
    }
    const Status status = run(one, all[seed % all.size()]);
    ASSERT_TRUE(status.ok()) << seed << ": " << status.message();
    for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(tensor.canaries_intact()) << name;
  }
}

}  // namespace
}  // namespace flashcore
