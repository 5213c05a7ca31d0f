// The parts of the command that need no process: numbers, tables, progress, timing, cases, gates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/cases/cases.hpp"
#include "bench/cases/work.hpp"
#include "bench/device/plan_choice.hpp"
#include "bench/gate/sampled_gate.hpp"
#include "bench/run/case_evidence.hpp"
#include "bench/text/numbers.hpp"
#include "bench/text/progress.hpp"
#include "bench/text/table.hpp"
#include "bench/time/cpu_peak.hpp"
#include "bench/time/meter.hpp"
#include "bench/time/timing.hpp"
#include "cli/problem_options.hpp"
#include "cli/session.hpp"
#include "cpu/target.hpp"
#include "plan/device.hpp"

namespace flashcore::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(bench::split("a,b", ','), ElementsAre("a", "b"));
  EXPECT_THAT(bench::split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_TRUE(bench::split("", ',').empty());
}

TEST(ParseNumbers, RefusesWhatIsNotAllNumbers) {
  const auto parse = [](const std::string& text) {
    return bench::parse_numbers("--n", text, 2, "L,R");
  };
  ASSERT_TRUE(parse("-1,64").ok());
  EXPECT_THAT(*parse("-1,64"), ElementsAre(-1, 64));
  for (const char* const bad :
       {"", "1", "1,2,3", "1,x", "1, 2", "1,2x", ",", "1,99999999999999999999"}) {
    EXPECT_EQ(parse(bad).status().message(), "--n: is '" + std::string(bad) + "', wanted L,R");
  }
}

TEST(Table, AlignsColumnsWithoutTrailingSpaces) {
  bench::Table table({{"name"}, {"n", bench::Align::right}, {"end"}});
  table.row({"a", "1", ""});
  table.row({{"long", bench::Tone::good, "er"}, "100", "x"});
  EXPECT_THAT(table.lines(), ElementsAre("name      n  end", "a         1", "longer  100  x"));
  EXPECT_THAT(table.lines(true),
              ElementsAre("name      n  end", "a         1", "\x1b[32mlong\x1b[0mer  100  x"));
  EXPECT_EQ(bench::display_width("\xc3\xa9t\xc3\xa9"), 3U);
}

TEST(ProgressLine, SaysWhatHowFarAndHowLong) {
  EXPECT_EQ(bench::progress_line("verify", 3, 12, 12.4, "long f16"),
            "verify 3/12 [#####---------------] 12 s: long f16");
  EXPECT_EQ(bench::progress_line("run", 0, 0, 3, ""), "run 3 s");
  EXPECT_EQ(bench::progress_line("run", 0, 0, 3, std::string(200, 'x')).size(), 78U);
}

using Style = bench::Progress::Style;

std::string written_by(Style style, std::chrono::milliseconds time) {
  std::FILE* const file = std::tmpfile();
  {
    bench::Progress progress(style, "task", 4, file);
    progress.step("first");
    std::this_thread::sleep_for(time);
    progress.advance();
  }
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(Progress, IsSilentWhenShortOrNotShown) {
  EXPECT_EQ(written_by(Style::redrawn, std::chrono::milliseconds(10)), "");
  EXPECT_EQ(written_by(Style::log, bench::Progress::kDelay + std::chrono::milliseconds(300)), "");
  EXPECT_EQ(written_by(Style::silent, bench::Progress::kDelay + std::chrono::milliseconds(300)),
            "");
}

TEST(Progress, ShowsAfterTwoSecondsAndErasesItself) {
  const std::string text =
      written_by(Style::redrawn, bench::Progress::kDelay + std::chrono::milliseconds(500));
  EXPECT_THAT(text, HasSubstr("task 0/4 [--------------------] 2 s: first"));
  EXPECT_THAT(text, ::testing::EndsWith("\r\x1b[K"));
}

TEST(Progress, IsWholeLinesInALog) {
  const std::string text =
      written_by(Style::log, bench::Progress::kLogDelay + std::chrono::milliseconds(500));
  EXPECT_EQ(text, "task 0/4 [--------------------] 5 s: first\n");
}

TEST(Printable, HidesControlCharacters) {
  EXPECT_EQ(bench::printable("a\x1b[2Jb\n\x7f\xc3\xa9"), "a?[2Jb??\xc3\xa9");
}

TEST(ExitCodes, FollowTheStatus) {
  EXPECT_EQ(cli::exit_code(StatusCode::ok), cli::ExitCode::ok);
  EXPECT_EQ(cli::exit_code(StatusCode::invalid_argument), cli::ExitCode::bad_input);
  EXPECT_EQ(cli::exit_code(StatusCode::unsupported), cli::ExitCode::unsupported);
  EXPECT_EQ(cli::exit_code(StatusCode::out_of_memory), cli::ExitCode::device_error);
  EXPECT_EQ(cli::exit_code(StatusCode::device_error), cli::ExitCode::device_error);
  EXPECT_EQ(cli::exit_code(StatusCode::internal), cli::ExitCode::internal);
}

TEST(Units, AreReadable) {
  EXPECT_EQ(bench::seconds_text(1.234e-6), "1.23 us");
  EXPECT_EQ(bench::seconds_text(0.01), "10 ms");
  EXPECT_EQ(bench::seconds_text(2.5), "2.5 s");
  EXPECT_EQ(bench::rate_text(5.21e10), "52.1 GFLOP/s");
  EXPECT_EQ(bench::rate_text(6.8e14), "680.0 TFLOP/s");
}

TEST(Quantile, IsTheNearestRank) {
  EXPECT_EQ(bench::quantile({3}, 0.5), 3);
  EXPECT_EQ(bench::quantile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(bench::quantile({4, 1, 3, 2}, 0.9), 4);
  EXPECT_EQ(bench::quantile({5, 1, 3, 2, 4}, 0.5), 3);
}

TEST(CpuTimer, TakesAtLeastFiveSamplesOfEnoughCalls) {
  int64_t calls = 0;
  bench::CpuTimer timer({.seconds = 0});
  const Result<bench::Timing> timing = timer.time([&](Stream) -> Status {
    ++calls;
    return {};
  });
  ASSERT_TRUE(timing.ok());
  EXPECT_EQ(timing->samples, 5);
  EXPECT_GT(timing->calls_per_sample, 1);  // one call is too short for the clock
  EXPECT_GT(calls, timing->samples * timing->calls_per_sample);  // the warm-up is not a sample
  EXPECT_GT(timing->p50, 0);
  EXPECT_LE(timing->p50, timing->p90);
}

TEST(CpuTimer, MeasuresOneCall) {
  constexpr std::chrono::milliseconds kCall{3};
  bench::CpuTimer timer({.seconds = 0, .warm_up_seconds = 0});
  const Result<bench::Timing> timing = timer.time([&](Stream) -> Status {
    std::this_thread::sleep_for(kCall);
    return {};
  });
  ASSERT_TRUE(timing.ok());
  EXPECT_EQ(timing->calls_per_sample, 1);
  EXPECT_GE(timing->p50, 3e-3);
}

TEST(CpuTimer, StopsAtTheFirstError) {
  bench::CpuTimer timer;
  int64_t calls = 0;
  const Result<bench::Timing> timing = timer.time([&](Stream) -> Status {
    return ++calls < 3 ? Status() : Status(StatusCode::device_error, "gone");
  });
  EXPECT_EQ(timing.status().message(), "gone");
  EXPECT_EQ(calls, 3);
}

// The ratio to a bound that does not apply means nothing: bf16 instructions
// exceed fp32's peak.
TEST(Ceilings, OfACpuAreOfTheTypesThatItMultipliesInFp32) {
  const auto meter = bench::make_meter({}, 1);
  ASSERT_TRUE(meter.ok()) << meter.status().message();
  nlohmann::ordered_json notes = nlohmann::ordered_json::array();
  const nlohmann::ordered_json ceilings =
      (*meter)->ceilings((*meter)->protocols()[0], {DType::f32, DType::f16, DType::bf16}, notes);
  const nlohmann::ordered_json& products = ceilings["matrix_product"];
  EXPECT_TRUE(products.contains("f32") && products.contains("f16"));
  const bool in_fp32 = cpu::target_for(true) <= cpu::Target::avx3;
  EXPECT_EQ(products.contains("bf16"), in_fp32);
  EXPECT_EQ(notes.empty(), in_fp32);
}

TEST(Ceilings, AreOfNoOtherType) {
  const bench::Subject subject{
      .suite = "test",
      .one = {.name = "one", .dtype = DType::bf16, .seqlen_q = 8, .seqlen_kv = 8, .head_dim = 8},
      .given = std::nullopt};
  bench::Point point;
  point.times["wall"].p50 = 1e-3;
  point.p50["wall"] = {1e-3};
  const nlohmann::ordered_json one = {{"dtype", "bf16"}, {"flop", 1e9}, {"bytes", 1e3}};
  for (const char* const dtype : {"f32", "bf16"}) {
    const nlohmann::ordered_json ceilings = {
        {"wall", {{"matrix_product", {{dtype, {{"tflops", 2.0}, {"library", "a test"}}}}}}}};
    const nlohmann::ordered_json rows = bench::rows_json({point}, one, subject, ceilings);
    const nlohmann::ordered_json& time = rows[0]["times"]["wall"];
    EXPECT_EQ(time.contains("percent_of_bound"), dtype == std::string("bf16")) << time;
    EXPECT_NEAR(time.value("percent_of_bound", 50.0), 50, 1e-9);
  }
}

TEST(Cases, AreValidProblemsWithNamesOfTheirOwn) {
  for (const bench::Suite& suite : bench::suites()) {
    const auto cases = bench::suite_cases(suite.name);
    ASSERT_TRUE(cases.has_value()) << suite.name;
    std::set<std::string> names;
    for (const bench::Case& one : *cases) {
      EXPECT_TRUE(names.insert(one.name).second) << one.name;
      EXPECT_TRUE(explain(bench::to_problem(one)).ok()) << one.name;
    }
  }
  EXPECT_FALSE(bench::suite_cases("other").has_value());
  EXPECT_EQ(bench::suite_cases("sweep")->size(), 36U);
  EXPECT_EQ(bench::suite_cases("decode")->size(), 10U);
}

TEST(Cases, OfServingHaveASmallForm) {
  for (const char* const suite :
       {"decode", "paged", "ragged", "rotated", "speculative", "prefill", "mla"}) {
    const auto cases = bench::suite_cases(suite), quick = bench::suite_cases(suite, true);
    ASSERT_TRUE(cases && quick && quick->size() == cases->size()) << suite;
    for (size_t n = 0; n < cases->size(); ++n) {
      EXPECT_EQ((*quick)[n].seqlen_kv * 8, (*cases)[n].seqlen_kv) << suite;
      EXPECT_TRUE(explain(bench::to_problem((*quick)[n])).ok()) << (*quick)[n].name;
    }
  }
  EXPECT_EQ(bench::suite_cases("decode", true)->front().name, "b1/1k/hkv8");
  EXPECT_FALSE(bench::suite_cases("five", true).has_value());
  // 34 MB of K and V: between two calls on one copy 512 MB of others are read.
  EXPECT_EQ(bench::rotated_copies(bench::suite_cases("rotated")->front()), 17);
  EXPECT_EQ(bench::rotated_copies(bench::suite_cases("decode")->front()), 1);
  const std::vector<int32_t> lengths = bench::ragged_lengths(8192, 64);
  EXPECT_EQ(lengths.front(), 102);
  EXPECT_EQ(lengths.back(), 8192);
}

TEST(Work, CountsByTheRuleOfTheReports) {
  bench::Case one{
      .name = "test", .batch = 2, .heads_q = 8, .heads_kv = 2, .seqlen_q = 16, .seqlen_kv = 16};
  const double full = 4.0 * 2 * 8 * 16 * 16 * 64;
  EXPECT_EQ(bench::forward_flop(bench::to_problem(one)), full);
  one.causal = true;
  EXPECT_EQ(bench::forward_flop(bench::to_problem(one)), full / 2);
  // A single query at the end sees every key; aligned at the top, one.
  one.seqlen_q = 1;
  Problem decode = bench::to_problem(one);
  EXPECT_EQ(bench::forward_flop(decode), full / 16);
  decode.alignment = Alignment::top_left;
  EXPECT_EQ(bench::forward_flop(decode), full / 256);
  // Lengths count if there are any.
  Problem lengths = bench::to_problem(one);
  lengths.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  bench::HostProblem host = bench::make_host_problem(lengths, 0);
  host.at("seqlens_kv").set(0, 4);
  host.at("seqlens_kv").set(1, 0);
  EXPECT_EQ(bench::forward_flop(host), 4.0 * 8 * 4 * 64);
}

// Five products per pair: two with rows of Dv elements, three with rows of Dqk.
TEST(Work, CountsTheBackwardPass) {
  bench::Case one{
      .name = "test", .batch = 2, .heads_q = 8, .heads_kv = 2, .seqlen_q = 16, .seqlen_kv = 16};
  const double full = 10.0 * 2 * 8 * 16 * 16 * 64;
  EXPECT_EQ(bench::backward_flop(bench::to_problem(one)), full);
  one.causal = true;
  EXPECT_EQ(bench::backward_flop(bench::to_problem(one)), full / 2);
  Problem window = bench::to_problem(one);
  window.window_left = 0;  // a query sees one key
  EXPECT_EQ(bench::backward_flop(window), full / 16);
  Problem wide = window;
  wide.v.shape[3] = wide.o.shape[3] = 32;
  wide.v.stride = {16 * 2 * 32, 16 * 32, 32, 1};
  wide.o.stride = {16 * 8 * 32, 16 * 32, 32, 1};
  EXPECT_EQ(bench::backward_flop(wide), (3.0 * 64 + 2.0 * 32) * 2 * 2 * 8 * 16);
  Problem lengths = bench::to_problem(one);
  lengths.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  bench::HostProblem host = bench::make_host_problem(lengths, 0);
  host.at("seqlens_kv").set(0, 1);
  host.at("seqlens_kv").set(1, 0);
  // The last query of the first entry sees its one key.
  EXPECT_EQ(bench::backward_flop(host), 10.0 * 8 * 64);
}

TEST(CpuCeilings, SomeBytesPerSecondAreRead) {
  for (const int threads : {1, 3}) {
    const double read = bench::measure_cpu_read(threads);
    EXPECT_GT(read, 1e8) << threads;  // a tenth of the slowest memory
    EXPECT_LT(read, 1e13) << threads;
  }
}

// A computed problem, and the reference for some of its rows.
struct Sampled {
  bench::HostProblem host;
  bench::SampledReference reference;

  static Sampled make(bool causal) {
    const bench::Case one{.name = "test",
                          .batch = 2,
                          .heads_q = 4,
                          .heads_kv = 2,
                          .seqlen_q = 100,
                          .seqlen_kv = 130,
                          .head_dim = 32,
                          .causal = causal};
    bench::HostProblem host = bench::make_host_problem(bench::to_problem(one), 7);
    PlanOptions options;
    options.kernel = "reference";
    const Result<Plan> plan = make_plan(host.problem, options);
    EXPECT_TRUE(plan.ok() && plan->run(host.arguments()).ok());
    Result<bench::SampledReference> reference = bench::SampledReference::compute(host, 2e6);
    EXPECT_TRUE(reference.ok()) << reference.status().message();
    return {std::move(host), std::move(*reference)};
  }
};

TEST(SampledGate, PassesWhatIsRight) {
  for (const bool causal : {false, true}) {
    const Sampled sampled = Sampled::make(causal);
    EXPECT_GT(sampled.reference.rows(), 32);
    EXPECT_LT(sampled.reference.rows(), 2 * 4 * 100);
    const bench::Verdict verdict = sampled.reference.judge(sampled.host);
    EXPECT_TRUE(verdict.passed) << verdict.failure;
    EXPECT_GT(verdict.max_scaled_error, 0);  // f16 rounding
  }
}

TEST(SampledGate, ReadsTheScalesOfEachHeadAndColumnsOfV) {
  for (const bool v_transposed : {false, true}) {
    const bench::Case one{.name = "test",
                          .dtype = DType::f8e4m3,
                          .batch = 2,
                          .heads_q = 4,
                          .heads_kv = 2,
                          .seqlen_q = 100,
                          .seqlen_kv = 130,
                          .head_dim = 32,
                          .scales = true,
                          .v_transposed = v_transposed};
    bench::HostProblem host = bench::fill(one, 7);
    for (const char* const name : {"q_scale", "k_scale", "v_scale"}) {
      bench::HostTensor& scales = host.at(name);
      for (int64_t i = 0; i < scales.elements(); ++i) {
        scales.set(i, 0.01 * static_cast<double>(i + 1));
      }
    }
    PlanOptions options;
    options.kernel = "reference";
    const Result<Plan> plan = make_plan(host.problem, options);
    ASSERT_TRUE(plan.ok() && plan->run(host.arguments()).ok());
    const Result<bench::SampledReference> reference = bench::SampledReference::compute(host, 2e6);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    EXPECT_LT(reference->rows(), 2 * 4 * 100);
    const bench::Verdict verdict = reference->judge(host);
    EXPECT_TRUE(verdict.passed) << verdict.failure;
    EXPECT_LT(verdict.max_scaled_error, 1e-3);  // f16 rounding: no scale was swapped
  }
}

TEST(SampledGate, FailsAWrongFirstOrLastRow) {
  for (const bool last : {false, true}) {
    Sampled sampled = Sampled::make(true);
    bench::HostTensor& o = sampled.host.at("o");
    const int64_t element = last ? o.elements() - 1 : 0;
    o.set(element, o.get(element) + 0.1);
    EXPECT_FALSE(sampled.reference.judge(sampled.host).passed) << last;
  }
}

TEST(SampledGate, FailsAnUnwrittenElementAnywhereAndAWriteOutside) {
  Sampled sampled = Sampled::make(false);
  bench::HostTensor& o = sampled.host.at("o");
  for (int64_t element = 0; element < o.elements(); element += 1111) {
    const double before = o.get(element);
    o.set(element, std::numeric_limits<double>::quiet_NaN());
    EXPECT_FALSE(sampled.reference.judge(sampled.host).passed) << element;
    o.set(element, before);
  }
  EXPECT_TRUE(sampled.reference.judge(sampled.host).passed);
  o.memory()[0] = std::byte{0};
  EXPECT_FALSE(sampled.reference.judge(sampled.host).passed);
}

TEST(PlanChoice, NamesDevices) {
  const auto allowed = [](const std::string& device, int64_t threads = 0) {
    bench::PlanChoice choice;
    choice.device = device;
    choice.threads = threads;
    return bench::allowed_devices(choice);
  };
  EXPECT_EQ(allowed("cpu")->front().device.kind, DeviceKind::cpu);
  EXPECT_EQ(allowed("cuda:3")->front().device.index, 3);
  EXPECT_EQ(allowed("sim")->front().device.kind, DeviceKind::sim);
  EXPECT_EQ(allowed("sim:2")->front().device.index, 2);
  EXPECT_EQ(allowed("auto")->back().device.kind, DeviceKind::cpu);
  const Result<std::vector<PlanOptions>> automatic = allowed("auto");
  ASSERT_TRUE(automatic.ok());
  for (const PlanOptions& one : *automatic) EXPECT_NE(one.device.kind, DeviceKind::sim);
  for (const char* const bad :
       {"", "gpu", "cuda:", "cuda:x", "cuda:99999999999", "CPU", "sim:", "simulator"}) {
    EXPECT_THAT(allowed(bad).status().message(),
                HasSubstr("wanted auto, cpu, cuda, cuda:N, sim or sim:N"));
  }
  EXPECT_THAT(allowed("cpu", -1).status().message(), HasSubstr("--threads: is -1"));
}

TEST(PlanChoice, TheSimulatorsSeedNeedsTheSimulator) {
  if (simulator_seed()) GTEST_SKIP() << "this build has it";
  bench::PlanChoice choice;
  choice.sim_seed = 4;
  EXPECT_THAT(bench::allowed_devices(choice).status().message(),
              HasSubstr("wanted a build with -DFLASHCORE_SIMULATOR=ON"));
  choice.sim_seed = -1;
  EXPECT_THAT(bench::allowed_devices(choice).status().message(), HasSubstr("--sim-seed: is -1"));
}

TEST(KernelsUnderTest, LeaveTheJudgesOutUnlessAskedFor) {
  const Problem problem = bench::to_problem({.name = "small"});
  const auto names = [&](const std::string& kernel) {
    PlanOptions options;
    options.kernel = kernel;
    std::vector<std::string> out;
    const auto tested = bench::kernels_under_test({problem}, options, true);
    EXPECT_TRUE(tested.ok()) << tested.status().message();
    for (const KernelVerdict& verdict : *tested) out.push_back(verdict.kernel);
    return out;
  };
  EXPECT_THAT(names("naive"), ElementsAre("naive"));
  EXPECT_THAT(names("reference"), ElementsAre("reference"));
  EXPECT_THAT(names(""), ::testing::Not(::testing::Contains("naive")));
  EXPECT_FALSE(names("").empty());
  PlanOptions options;
  options.kernel = "other";
  EXPECT_THAT(bench::kernels_under_test({problem}, options, true).status().message(),
              HasSubstr("kernel: is 'other'"));
}

}  // namespace
}  // namespace flashcore::tests
