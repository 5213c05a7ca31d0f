// Which of 100,000 random problems each variant of the table computes, on GPUs of several generations: how many, and
// a digest of every answer. What changes here changes what the library computes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "plan/device.hpp"
#include "plan/kernel_choice.hpp"
#include "plan/kernel_names.hpp"
#include "plan/table.hpp"
#include "tests/cuda/random_passes.hpp"

namespace flashcore {
namespace {

struct Answers {
  int64_t asked = 0, computes = 0;
  tests::Digest digest;

  void add(bool computed) {
    ++asked;
    computes += computed ? 1 : 0;
    digest.add(static_cast<uint8_t>(computed));
  }
};

class Verdicts {
 public:
  template <class AnyProblem>
  void ask(const AnyProblem& p, bool batch_invariant, bool hostile) {
    const bool backward = !std::is_same_v<AnyProblem, ForwardProblem>;
    for (const PlanContext& context : contexts(batch_invariant)) {
      for (const Variant& variant : variants()) {
        if (!runs_on(variant, context.device.device.kind) || !flashcore::computes(variant, p))
          continue;
        if (hostile && variant.name == "cpu_simd") continue;
        const KernelVerdict verdict = verdict_of(variant, p, context);
        const bool computes = verdict.refusal.empty();
        answers_[variant.name + (backward ? ", backward" : "")].add(computes);
        if (variant.name != "forward_sm90_throughput") continue;
        for (const std::string config : {"192x128", "64x128", "64x64"}) {
          answers_[with_config(variant.name, config)].add(
              computes && refuse_config(variant, p, context, config).empty());
        }
      }
    }
  }

  const std::map<std::string, Answers>& answers() const { return answers_; }

 private:
  static std::vector<PlanContext> contexts(bool batch_invariant) {
    std::vector<PlanContext> all(1);
    all[0].device = cpu_device();
    all[0].threads = 4;
    for (const fake::Gpu& gpu : tests::kGpus) all.push_back(fake::context_of(gpu));
    for (PlanContext& context : all) context.batch_invariant = batch_invariant;
    return all;
  }

  std::map<std::string, Answers> answers_;
};

std::string table_of(const Verdicts& verdicts) {
  std::string text;
  for (const auto& [name, one] : verdicts.answers()) {
    text += fmt::format("{:<38} {:>7} of {:>7}  {:016x}\n", name, one.computes, one.asked,
                        one.digest.value);
  }
  return text;
}

constexpr tests::Recorded kWanted = {
    100000, 5000, R"(00_unfused                                4256 of  546189  c40ca183e520a6af
12_mma_sync                               4256 of  546189  c40ca183e520a6af
13_fp8_stage_c                             152 of  546189  0ea20af2755d414f
14_fp8_native                               76 of  546189  bd0a61d66b41f9ff
15_wgmma_tma                               996 of  546189  8c3e6f409dc2b391
backward_sm80, backward                 101316 of  153811  1ac4c5f973be5a37
backward_sm90, backward                   3588 of  153811  11396416328db2d5
backward_sm90:options, backward           1747 of  153811  0b99607e751193da
backward_sm90:split, backward             2072 of  153811  2a0716536fcd3fc7
backward_sm90:wide, backward               778 of  153811  4cf26586841a7b3b
cpu_simd                                 68192 of   69759  f5f668e78c21c5ad
cpu_simd, backward                       17554 of   20451  32316ef55adf4987
decode_sm80                             198174 of  546189  c527b4ef64314755
decode_sm90                               9942 of  546189  c2d00d2a94064b8b
forward_converted:fp8                    78366 of  546189  4db2c2487748350d
forward_converted:v_rows                 21366 of  546189  d2688882226728cd
forward_fp8_sm89                          6836 of  546189  830f0f6b4b78754f
forward_fp8_sm89:precise                  6836 of  546189  830f0f6b4b78754f
forward_fp8_sm90                          2371 of  546189  e62a32f3b3223934
forward_fp8_sm90:192x64                   1187 of  546189  4d0033573e474dd0
forward_fp8_sm90:options                  3672 of  546189  5931bf3bac21615b
forward_fp8_sm90:precise                  2371 of  546189  e62a32f3b3223934
forward_sm80_latency                     40842 of  546189  350656a1759e7a61
forward_sm80_throughput                 139386 of  546189  afe482d9db897f7d
forward_sm80_throughput:f32              11466 of  546189  bdfca79c0c8173a5
forward_sm80_throughput:fp8              79944 of  546189  c6daa836a367fd3b
forward_sm80_throughput:paged            18582 of  546189  f3875e219f526a41
forward_sm80_throughput:split_kv        150192 of  546189  9972d03e9a63b2b7
forward_sm90_latency                      6208 of  546189  3cfdd58e306cb565
forward_sm90_latency:wide                 6208 of  546189  3cfdd58e306cb565
forward_sm90_throughput                   9674 of  546189  09f6aaefa6f1c7e9
forward_sm90_throughput:192x128           3325 of  546189  00011ae902b6e94a
forward_sm90_throughput:64x128            3325 of  546189  00011ae902b6e94a
forward_sm90_throughput:64x64             3325 of  546189  00011ae902b6e94a
forward_sm90_throughput:options           2915 of  546189  60f89e8a4a881c30
forward_sm90_throughput:paged             1082 of  546189  1bf5db85032abe8d
mla_sm90                                     0 of  546189  9c51b5328498332f
naive                                    49758 of   78027  6d2bc1bd54b0a20f
naive, backward                          21973 of   21973  37595b2b3b438e78
reference                                78027 of   78027  895cc1605b038e7a
reference, backward                      21973 of   21973  37595b2b3b438e78
)",
    "4813d2ef4b577333"};

TEST(Verdicts, AreThoseOfTheTable) {
  fake::forget();
  fake::use(tests::kGpus[4]);
  Verdicts verdicts;
  tests::for_random_passes(kWanted.count(), [&](const tests::RandomPass& pass) {
    std::visit([&](const auto& p) { verdicts.ask(p, pass.batch_invariant, pass.hostile); },
               pass.problem);
  });
  kWanted.expect(table_of(verdicts));
}

}  // namespace
}  // namespace flashcore
