// A kernel runs where it has code: what nvcc is told to compile and what the table of kernels is
// told agree, whatever GPUs a build is for.
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "family_targets.hpp"
#include "kernel/device_code.hpp"

namespace flashcore {
namespace {

using tests::FamilyTargets;
using tests::kFamilyTargets;

constexpr int32_t kCapabilities[] = {70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};

// Returns what nvcc's options give a GPU: machine code runs from its own GPU to the last of its generation,
// code with an "a" only on its own, PTX on all from its own on.
DeviceCode code_by_options(const std::string& options, int32_t capability) {
  DeviceCode best = DeviceCode::none;
  const std::regex option("-gencode=arch=compute_[0-9a]+,code=(sm|compute)_([0-9]+)(a?)");
  for (std::sregex_iterator it(options.begin(), options.end(), option), end; it != end; ++it) {
    const int32_t number = std::stoi((*it)[2]);
    const bool ptx = (*it)[1] == "compute", one_only = (*it)[3] == "a";
    if (number > capability || (one_only && number != capability)) continue;
    if (number / 10 == capability / 10) best = std::max(best, DeviceCode::compiled);
    if (ptx) best = std::max(best, DeviceCode::ptx);
  }
  return best;
}

TEST(Targets, TheTableIsToldWhatNvccIsTold) {
  for (const FamilyTargets& row : kFamilyTargets) {
    for (const int32_t capability : kCapabilities) {
      EXPECT_EQ(device_code(row.targets, capability),
                code_by_options(std::string(row.options), capability))
          << row.asked << ", " << row.family << " on " << capability << ": " << row.targets << ", "
          << row.options;
    }
  }
}

std::string_view targets_of(std::string_view asked, std::string_view family) {
  for (const FamilyTargets& row : kFamilyTargets) {
    if (row.asked == asked && row.family == family) return row.targets;
  }
  ADD_FAILURE() << "no row for " << asked << " and " << family;
  return {};
}

TEST(Targets, AGpuThatIsAskedForGetsTheKernelsForAmpere) {
  for (const char* const family : {"forward_sm80_throughput", "forward_sm80_latency"}) {
    const auto runs = [&](const char* asked, int32_t capability) {
      return device_code(targets_of(asked, family), capability);
    };
    EXPECT_EQ(runs("89;90a", 89), DeviceCode::compiled);
    EXPECT_EQ(runs("89;90a", 90), DeviceCode::compiled);
    EXPECT_EQ(runs("89;90a", 80), DeviceCode::none);
    EXPECT_EQ(runs("90a", 90), DeviceCode::compiled);
    EXPECT_EQ(runs("90a", 89), DeviceCode::none);
    EXPECT_EQ(runs("86;89", 86), DeviceCode::compiled);
    EXPECT_EQ(runs("80;89;90a", 86), DeviceCode::compiled);
    EXPECT_EQ(runs("80;120", 120), DeviceCode::none) << "no code of its own, and no PTX";
    EXPECT_EQ(runs("80+ptx;120", 120), DeviceCode::ptx);
    EXPECT_EQ(runs("80+ptx;89;90a", 100), DeviceCode::ptx);
    EXPECT_EQ(runs("80+ptx;89;90a", 90), DeviceCode::compiled);
    EXPECT_EQ(runs("80+ptx;89;90a", 75), DeviceCode::none);
  }
}

TEST(Targets, TheKernelsForHopperRunThereAlone) {
  for (const FamilyTargets& row : kFamilyTargets) {
    if (!row.family.starts_with("forward_sm90") && row.family != "ladder_wgmma") continue;
    for (const int32_t capability : kCapabilities) {
      EXPECT_EQ(built_for(row.targets, capability),
                capability == 90 && row.asked.find("90a") != std::string_view::npos)
          << row.asked << ", " << row.family << " on " << capability;
    }
  }
}

TEST(Targets, ARefusalNamesThem) {
  EXPECT_EQ(refuse_code("80+ptx;90a", 120), "");
  EXPECT_EQ(refuse_code("80;90a", 120),
            "device: compute capability is 12.0, this build has code for 80;90a");
  EXPECT_EQ(refuse_code("", 90),
            "device: compute capability is 9.0, this build has code for none, for this kernel");
}

}  // namespace
}  // namespace flashcore
