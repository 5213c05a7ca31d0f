// What measurements say about the code that they measured.
#include "plan/fingerprints.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/table.hpp"

namespace flashcore {
namespace {

using testing::MatchesRegex;

TEST(Fingerprints, EveryKernelHasOne) {
  for (const Kernel& kernel : kernels()) {
    SCOPED_TRACE(kernel.name);
    if (kernel.device == DeviceKind::cpu) {
      EXPECT_THAT(std::string(kernel_fingerprint(kernel.name, Device{})),
                  MatchesRegex("source [0-9a-f]+"));
      EXPECT_EQ(kernel_fingerprint(kernel.name, 90), "");
      continue;
    }
    EXPECT_EQ(kernel_fingerprint(kernel.name, 0), "");
    bool found = false;  // for one of the GPU families of this build at least
    for (const int capability : {80, 89, 90}) {
      const std::string text(kernel_fingerprint(kernel.name, capability));
      if (text.empty()) continue;
      found = true;
      EXPECT_THAT(text, MatchesRegex("nvcc [0-9.]+ sm_[0-9]+ [0-9a-f]+"));
    }
    EXPECT_TRUE(found);
  }
}

TEST(Fingerprints, VariantsHaveTheirOwn) {
  if (kernel_fingerprint("06_cp_async", 80).empty()) GTEST_SKIP() << "no CUDA kernels for 8.0";
  EXPECT_NE(kernel_fingerprint("06_cp_async", 80), kernel_fingerprint("06_cp_async_s3", 80));
  EXPECT_EQ(kernel_fingerprint("06", 80), "");
  EXPECT_EQ(kernel_fingerprint("06_cp_async_s4", 80), "");
}

TEST(Fingerprints, CodeIsThatOfTheNewestFamilyOfAGpusGeneration) {
  const std::string_view on_80 = kernel_fingerprint("12_mma_sync", 80);
  if (on_80.empty()) GTEST_SKIP() << "no CUDA kernels for 8.0";
  EXPECT_EQ(kernel_fingerprint("12_mma_sync", 86), on_80);
  EXPECT_EQ(kernel_fingerprint("12_mma_sync", 75), "");
  EXPECT_EQ(kernel_fingerprint("12_mma_sync", 100), "");
  if (const std::string on_90(kernel_fingerprint("12_mma_sync", 90)); !on_90.empty()) {
    EXPECT_NE(on_90, on_80);
  }
}

}  // namespace
}  // namespace flashcore
