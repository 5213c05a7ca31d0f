// What every kernel promises besides the right numbers, on a GPU: bits that repeat and may not depend on the batch,
// graphs that replay on new inputs, runs that do not disturb each other, early starts. promises_test.cpp has the tests; the files of
// kernels have what they are tested on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <variant>

#include "tests/cuda/device/device_tensors.hpp"

namespace flashcore {

using AnyHost = std::variant<bench::HostProblem, bench::HostBackward>;

struct Promised {
  std::string name;
  PlanOptions options;
  // Inputs; lengths may depend on the seed, shapes may not.
  std::function<AnyHost(int64_t batch, uint64_t seed)> make;
  bool is_alone_as_in_batch = false;             // for batches whose entries follow each other
  std::optional<bench::GateLimits> limits = {};  // where they are not the problem's own
  bool starts_early = false;                     // on request; Q may then be the last run's O
};

inline std::ostream& operator<<(std::ostream& out, const Promised& promised) {
  return out << promised.options.kernel << " " << promised.name;
}

class Promises : public testing::TestWithParam<Promised> {
 protected:
  void SetUp() override {
    if (!runs_here(kernel())) GTEST_SKIP() << "no GPU that " << kernel() << " runs on";
  }

  static const std::string& kernel() { return GetParam().options.kernel; }

  // body(host), of whichever pass.
  template <class Body>
  static void with_inputs(int64_t batch, uint64_t seed, const Body& body) {
    AnyHost host = GetParam().make(batch, seed);
    std::visit(body, host);
  }
  // More inputs of the same pass.
  template <class Host>
  static Host like(const Host& /*host*/, int64_t batch, uint64_t seed) {
    return std::get<Host>(GetParam().make(batch, seed));
  }
  template <class Host>
  static Plan plan_for(const Host& host) {
    return plan_of(host, GetParam().options);
  }
};

}  // namespace flashcore
