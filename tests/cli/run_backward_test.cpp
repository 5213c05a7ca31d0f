// `flashcore run --backward`: its results, output files and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/io/npy.hpp"
#include "bench/tensors/host_tensor.hpp"
#include "tests/cli/command.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kExample = std::string(FLASHCORE_EXAMPLES) + "/attention.safetensors";

Words backward_with(const Words& more) {
  Words words = small_with({"--backward"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(RunBackward, ChecksAndTimes) {
  const json result = document(backward_with({"--causal", "--check"}));
  EXPECT_EQ(result["status"], "ok");
  EXPECT_EQ(result["pass"], "backward");
  EXPECT_EQ(result["check"]["passed"], true);
  EXPECT_GT(result["check"]["relative_error"], 0);
  EXPECT_EQ(result["check"]["relative_error_limit"], 3e-3);
  EXPECT_GE(result["time"]["samples"], 5);
  EXPECT_EQ(result["flop"], 10.0 * 2 * 4 * 40 * 40 * 32 / 2);
  EXPECT_EQ(result["gradients"]["dk"]["shape"], json({2, 2, 40, 32}));
  EXPECT_EQ(document(small_with({"--no-time"}))["pass"], "forward");
}

TEST(RunBackward, TellsPeopleTheSame) {
  const Outcome outcome = flashcore_command(backward_with({"--causal", "--check"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  for (const char* const part :
       {"problem  backward of q f16 [2, 4, 40, 32]", "d_o drawn from N(0, 1)", "kernel   ",
        "passed", "(limit 3.0e-03)", "p50", "FLOP/s"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(RunBackward, EveryDtypeAndFeature) {
  for (const char* const dtype : {"f32", "f16", "bf16"}) {
    for (const char* const gradients : {"", "f32"}) {
      SCOPED_TRACE(std::string(dtype) + " " + gradients);
      Words words =
          backward_with({"--dtype",        dtype,
                         "--check",        "--no-time",
                         "--with",         "bias,mask,sinks,alibi_slopes,seqlens_kv,d_lse",
                         "--window",       "16,3",
                         "--softcap",      "20",
                         "--dropout",      "0.25",
                         "--dropout-seed", "9",
                         "--scale",        "0.2",
                         "--head-dim-v",   "24",
                         "--seqlen-kv",    "33"});
      if (*gradients != '\0') words.insert(words.end(), {"--gradient-dtype", gradients});
      const json result = document(words);
      EXPECT_EQ(result["check"]["passed"], true) << result["check"]["failure"];
      const json& found = result["gradients"];
      EXPECT_EQ(found["dv"]["dtype"], *gradients != '\0' ? gradients : dtype);
      EXPECT_TRUE(found.contains("d_bias") && found.contains("d_sinks") &&
                  found.contains("d_alibi_slopes") && found.contains("d_lse"));
    }
  }
}

TEST(RunBackward, TheReferenceWritesF64) {
  const json result = document(backward_with(
      {"--gradient-dtype", "f64", "--with", "sinks", "--kernel", "reference", "--no-time"}));
  EXPECT_EQ(result["kernel"], "reference");
  EXPECT_EQ(result["gradients"]["d_sinks"]["dtype"], "f64");
}

TEST(RunBackward, AFailedCheckIsExitCode1AndWritesNothing) {
  const Scratch scratch;
  // Scores in the hundreds, rounded to f16 by the naive computation.
  const Outcome outcome =
      flashcore_command({"run", "--shape", "1,1,16,32", "--scale", "20", "--seed", "3", "--kernel",
                         "naive", "--device", "cpu", "--backward", "--check", "--json", "--out",
                         scratch.path("gradients.safetensors")});
  EXPECT_EQ(outcome.exit_code, 1);
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["status"], "check_failed");
  EXPECT_THAT(result["check"]["failure"].get<std::string>(), HasSubstr("limit"));
  EXPECT_TRUE(result["time"].is_null());  // no time without a gate
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("FAILED"), HasSubstr("was not written")));
  EXPECT_THAT(scratch.names(), IsEmpty());
}

// The saved inputs include the incoming gradients, and bits repeat.
TEST(RunBackward, FromItsOwnSavedInputsGivesTheSameBits) {
  const Scratch scratch;
  const std::string inputs = scratch.path("in.safetensors"), first = scratch.path("1.safetensors"),
                    second = scratch.path("2.safetensors");
  document(backward_with({"--with", "bias,sinks,d_lse", "--causal", "--no-time", "--seed", "3",
                          "--save-inputs", inputs, "--out", first}));
  const Words again = {"run",      inputs, "--causal", "--no-time", "--backward",
                       "--device", "cpu",  "--out",    second};
  EXPECT_EQ(document(again)["forward"], "cpu_simd; d_o from a file");
  const auto a = stored_in(first);
  EXPECT_EQ(a, stored_in(second));
  EXPECT_EQ(a.size(), 5u);
  EXPECT_THAT(a.at("dk").shape, ElementsAre(2, 2, 40, 32));
  EXPECT_EQ(a.at("dk").type, "F16");
  EXPECT_THAT(a.at("d_bias").shape, ElementsAre(1, 4, 40, 40));
  EXPECT_EQ(a.at("d_sinks").type, "F32");

  // With another incoming gradient, or without one of them, the result differs.
  const auto dq_with = [&](const Words& more) {
    Words words = again;
    words.insert(words.end(), more.begin(), more.end());
    document(words);
    return stored_in(second).at("dq");
  };
  EXPECT_EQ(dq_with({}), a.at("dq"));
  EXPECT_NE(dq_with({"--d-o", "q"}), a.at("dq"));
  EXPECT_NE(dq_with({"--without", "d_lse"}), a.at("dq"));
  EXPECT_NE(dq_with({"--without", "d_o", "--seed", "4"}), a.at("dq"));
  // Numbers do not change if other gradients are not requested.
  EXPECT_EQ(dq_with({"--gradients", "dq"}), a.at("dq"));
  EXPECT_EQ(stored_in(second).size(), 1u);
}

// The gradient of the sum of all of V's rows, dO = 1, where dV is known. In both layouts, from
// arrays, with dO of another type.
TEST(RunBackward, ReadsAndWritesArraysInBothLayouts) {
  for (const char* const layout : {"bhsd", "bshd"}) {
    SCOPED_TRACE(layout);
    const bool swapped = std::string(layout) == "bshd";
    const Scratch scratch;
    const std::vector<int64_t> shape =
        swapped ? std::vector<int64_t>{1, 6, 2, 8} : std::vector<int64_t>{1, 2, 6, 8};
    // dO of head h is h + 1; with Q = 0 every key has weight 1/6 in each of 6 rows.
    std::vector<double> d_o(96);
    for (size_t i = 0; i < d_o.size(); ++i) {
      d_o[i] = static_cast<double>((swapped ? i / 8 % 2 : i / 48) + 1);
    }
    const std::vector<float> zeros(96);
    const auto bytes = [](const auto& data) { return std::as_bytes(std::span(data)); };
    for (const char* const name : {"q", "k", "v"}) {
      ASSERT_TRUE(io::write_npy(scratch.path(std::string(name) + ".npy"),
                                {"", DType::f32, shape, bytes(zeros)})
                      .ok());
    }
    ASSERT_TRUE(io::write_npy(scratch.path("d_o.npy"), {"", DType::f64, shape, bytes(d_o)}).ok());
    const json result = document({"run", "--q", scratch.path("q.npy"), "--k", scratch.path("k.npy"),
                                  "--v", scratch.path("v.npy"), "--d-o", scratch.path("d_o.npy"),
                                  "--layout", layout, "--backward", "--gradients", "dv",
                                  "--no-time", "--device", "cpu", "--out", scratch.path("dv.npy")});
    EXPECT_EQ(result["gradients"]["d_o"]["dtype"], "f32");
    const auto file = io::open_file(scratch.path("dv.npy"));
    ASSERT_TRUE(file.ok());
    const auto info = io::list_npy(**file);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->shape, shape);
    std::vector<float> dv(96);
    ASSERT_TRUE((*file)->read(info->offset, std::as_writable_bytes(std::span(dv))).ok());
    for (size_t i = 0; i < dv.size(); ++i) EXPECT_NEAR(dv[i], d_o[i], 1e-5) << i;
  }
}

TEST(RunBackward, ComputesPackedBatches) {
  const Scratch scratch;
  const int32_t offsets[] = {0, 3, 10};
  const std::vector<float> tokens(10 * 2 * 16, 0.5f);
  const auto bytes = [](const auto& data) { return std::as_bytes(std::span(data)); };
  const std::string file = scratch.path("packed.safetensors");
  ASSERT_TRUE(
      io::write_safetensors(
          file, std::vector<io::OutputTensor>{{"q", DType::f32, {10, 2, 16}, bytes(tokens)},
                                              {"k", DType::f32, {10, 2, 16}, bytes(tokens)},
                                              {"v", DType::f32, {10, 2, 16}, bytes(tokens)},
                                              {"d_o", DType::f32, {10, 2, 16}, bytes(tokens)},
                                              {"cu_seqlens_q", DType::i32, {3}, bytes(offsets)},
                                              {"cu_seqlens_kv", DType::i32, {3}, bytes(offsets)}})
          .ok());
  const json result =
      document({"run", file, "--causal", "--backward", "--check", "--no-time", "--device", "cpu"});
  EXPECT_EQ(result["check"]["passed"], true) << result["check"]["failure"];
  // 3 and 7 queries, causal.
  EXPECT_EQ(result["flop"], 10.0 * 2 * 16 * (6 + 28));
}

TEST(RunBackward, OptionsAreRefusedWithoutIt) {
  for (const Words& option : std::vector<Words>{{"--d-o", "q"},
                                                {"--d-lse", "q"},
                                                {"--gradients", "dq"},
                                                {"--gradient-dtype", "f32"},
                                                {"--any-order"}}) {
    expect_refused(small_with(option), 2,
                   option.front() + ": is given, wanted it only with --backward");
  }
  expect_refused(small_with({"--with", "d_lse"}), 2, "--with: is 'd_lse', wanted bias");
  expect_refused({"run", kExample, "--without", "d_o"}, 2, "--without: is 'd_o', wanted names");
}

TEST(RunBackward, RefusesWhatItCannotDoAndLosesNothing) {
  const Scratch scratch;
  const std::string out = scratch.write("out.safetensors", "kept");
  const auto refused = [&](const Words& more, const std::string& sentence) {
    Words words = backward_with(more);
    words.insert(words.end(), {"--out", out});
    expect_refused(words, 2, sentence);
  };
  refused({"--no-lse"}, "--no-lse: is given with --backward, wanted one of them");
  refused({"--lse-out", scratch.path("l.npy")}, "l.npy' with --backward, wanted one of them");
  refused({"--gradients", "dq,d_bias"}, "--gradients: is 'd_bias', wanted dq, dk, dv of this");
  refused({"--gradients", "dq,dq"}, "--gradients: has 'dq' twice, wanted it once");
  refused({"--gradient-dtype", "f16"}, "--gradient-dtype: is 'f16', wanted f32|f64");
  refused({"--dtype", "f8e4m3"}, "q: dtype is f8e4m3, wanted f32, f16 or bf16 for a backward");
  refused({"--with", "d_k"}, "--with: is 'd_k', wanted bias");
  refused({"--d-o", scratch.path("d_o.npy")},
          "together with files, wanted either a shape or files");
  refused({"--save-inputs", out}, "is another output too");
  expect_refused(backward_with({"--out", scratch.path("d.npy")}), 2,
                 "holds one array, wanted .safetensors for 3 gradients");
  expect_refused(
      backward_with({"--gradients", "dq", "--dtype", "bf16", "--out", scratch.path("dq.npy")}), 2,
      ".npy has no bf16, wanted a .safetensors file or --gradient-dtype f32");
  const auto file_refused = [&](const Words& more, const std::string& sentence) {
    Words words = {"run", kExample, "--backward", "--device", "cpu", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    expect_refused(words, 2, sentence);
  };
  file_refused({"--d-o", "k"}, "d_o: shape is [1, 2, 64, 32], wanted o's = [1, 8, 64, 32]");
  file_refused({"--d-o", "other"}, "d_o: is given as 'other', wanted a tensor of");
  file_refused({"--d-lse", "q"}, "d_lse: ");
  file_refused({"--d-o", scratch.path("missing.npy")}, "cannot be opened");
  const std::vector<int32_t> numbers(1 * 8 * 64 * 32);
  ASSERT_TRUE(io::write_npy(scratch.path("i32.npy"),
                            {"", DType::i32, {1, 8, 64, 32}, std::as_bytes(std::span(numbers))})
                  .ok());
  file_refused({"--d-o", scratch.path("i32.npy")},
               "d_o: dtype is i32, wanted a floating-point type");
  const std::string d_o = scratch.path("d_o.npy");
  ASSERT_TRUE(
      io::write_npy(d_o, {"", DType::f32, {1, 8, 64, 32}, std::as_bytes(std::span(numbers))}).ok());
  expect_refused({"run", kExample, "--backward", "--d-o", d_o, "--out", d_o, "--gradients", "dq"},
                 2, "is an input, wanted another file");
  expect_refused({"run", "--shape", "1,1,70000,128", "--with", "bias", "--dtype", "f32",
                  "--backward", "--device", "cpu"},
                 4, "memory: the tensors take");
  EXPECT_THAT(scratch.names(), ElementsAre("d_o.npy", "i32.npy", "out.safetensors"));
  EXPECT_EQ(scratch.read("out.safetensors"), "kept");
}

TEST(RunBackward, ComputesTheExample) {
  const Scratch scratch;
  const std::string out = scratch.path("gradients.safetensors");
  const json result = document(
      {"run", kExample, "--causal", "--backward", "--check", "--device", "cpu", "--out", out});
  EXPECT_EQ(result["check"]["passed"], true);
  EXPECT_EQ(stored_in(out).size(), 4u);  // dq, dk, dv, d_sinks
}

}  // namespace
}  // namespace flashcore::tests
