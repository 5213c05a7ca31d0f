// Statements of measurements about the code that they measured.
#include "plan/fingerprints.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plan/table.hpp"

namespace flashcore {
namespace {

constexpr DeviceFunction kFunctions[] = {{"rows", 80, "nvcc 13.0.88", "00000000000000a0"},
                                         {"rows", 89, "nvcc 13.0.88", "00000000000000a9"},
                                         {"rows", 90, "nvcc 13.0.88", "0000000000000090"},
                                         {"join", 80, "nvcc 13.0.88", "00000000000000b0"},
                                         {"join", 90, "nvcc 13.0.88", "0000000000000001"}};

TEST(Fingerprints, CpuKernelsAreKnownByTheirSources) {
  for (const Variant& kernel : variants()) {
    SCOPED_TRACE(kernel.name);
    const std::string text(cpu_fingerprint(kernel.name));
    if (kernel.device != DeviceKind::cpu) {
      EXPECT_EQ(text, "");
      continue;
    }
    EXPECT_THAT(text, testing::MatchesRegex("source [0-9a-f]+"));
    EXPECT_EQ(cpu_fingerprint(kernel.name + ":config"), text);
    EXPECT_EQ(fingerprint_of(kernel.name, Device{}, {}), text);
    EXPECT_TRUE(is_current(kernel.name, text));
    EXPECT_FALSE(is_current(kernel.name, "source 0123456789abcdef"));
  }
}

TEST(Fingerprints, AGpuIsKnownByEachFunctionThatItLaunched) {
  EXPECT_EQ(code_fingerprint({"rows", "join"}, 90, kFunctions),
            "nvcc 13.0.88 sm_90 0000000000000001 0000000000000090");
  EXPECT_EQ(code_fingerprint({"rows"}, 90, kFunctions), "nvcc 13.0.88 sm_90 0000000000000090");
  EXPECT_EQ(code_fingerprint({}, 90, kFunctions), "");
  EXPECT_EQ(code_fingerprint({"rows", "another"}, 90, kFunctions), "");
}

TEST(Fingerprints, CodeIsTheNewestOfAGpusGeneration) {
  EXPECT_EQ(code_fingerprint({"rows"}, 86, kFunctions), "nvcc 13.0.88 sm_80 00000000000000a0");
  EXPECT_EQ(code_fingerprint({"rows", "join"}, 89, kFunctions),
            "nvcc 13.0.88 sm_89 00000000000000a9 00000000000000b0");
  for (const int other : {75, 100}) EXPECT_EQ(code_fingerprint({"rows"}, other, kFunctions), "");
}

TEST(Fingerprints, ARowIsCurrentWhileItsFunctionsAreWhatTheyWere) {
  const std::string text = code_fingerprint({"rows", "join"}, 90, kFunctions);
  EXPECT_TRUE(is_current("kernel", text, kFunctions));
  DeviceFunction changed[std::size(kFunctions)];
  std::copy(std::begin(kFunctions), std::end(kFunctions), changed);
  changed[0].digest = "00000000000000ff";  // another GPU's
  changed[4].name = "renamed";
  EXPECT_TRUE(is_current("kernel", text, changed));
  changed[4].digest = "00000000000000ff";
  EXPECT_FALSE(is_current("kernel", text, changed));
  EXPECT_FALSE(is_current("kernel", text, std::span(kFunctions).first(4)));
  for (const char* const other :
       {"", "nvcc 13.0.88", "nvcc 13.0.88 sm_90", "nvcc 13.0.88 sm_90 ",
        "nvcc 13.0.89 sm_90 0000000000000090", "nvcc 13.0.88 sm_80 0000000000000090",
        "nvcc 13.0.88 sm_90 0000000000000090 00", "source 0123456789abcdef"}) {
    EXPECT_FALSE(is_current("kernel", other, kFunctions)) << other;
  }
}

TEST(Fingerprints, EveryFunctionOfThisBuildHasADigest) {
  for (const DeviceFunction& one : device_functions()) {
    EXPECT_THAT(std::string(one.digest), testing::MatchesRegex("[0-9a-f]+")) << one.name;
    EXPECT_THAT(std::string(one.compiler), testing::MatchesRegex("nvcc [0-9.]+")) << one.name;
    EXPECT_TRUE(is_current("kernel", code_fingerprint({std::string(one.name)}, one.target)));
  }
}

}  // namespace
}  // namespace flashcore
