// Evidence of kernels that have another name by now.
#include <gtest/gtest.h>

#include "bench/evidence/evidence_file.hpp"

namespace flashcore::bench {
namespace {

using Json = nlohmann::ordered_json;

TEST(EvidenceNames, FormerOnesAreReadAsPresentOnes) {
  const Json written = Json::parse(R"({
    "kernels": ["forward_sm80_fp8", "forward_sm90_latency early", "cpu_simd", "PyTorch flash", 1.5, null],
    "fingerprints": {"forward_sm90_64x64": "forward_fp8_sm90_three:x", "forward_sm90_paged_more": true}})");
  const Json wanted = Json::parse(R"({
    "kernels": ["forward_sm80_throughput:fp8", "forward_sm90_latency early", "cpu_simd", "PyTorch flash", 1.5, null],
    "fingerprints": {"forward_sm90_throughput:64x64": "forward_fp8_sm90:192x64:x", "forward_sm90_paged_more": true}})");
  EXPECT_EQ(with_present_names(written), wanted);
  EXPECT_EQ(with_present_names(wanted), wanted);
}

}  // namespace
}  // namespace flashcore::bench
