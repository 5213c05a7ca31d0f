// `flashcore quantize`: its output, that `run` reads it, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::tests {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Shape = std::vector<int64_t>;

const std::string kExample = std::string(FLASHCORE_EXAMPLES) + "/attention.safetensors";

Words quantize_with(const Words& more) {
  Words words = {"quantize", "--shape", "2,4,40,32", "--heads-kv", "2", "--dtype", "bf16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Quantize, WritesWhatRunReads) {
  const Scratch scratch;
  const std::string out = scratch.path("fp8.safetensors");
  const json result = document({"quantize", kExample, "--causal", "--error", "--out", out});
  EXPECT_EQ(result["becomes"]["tensors"]["q"]["dtype"], "f8e4m3");
  EXPECT_GT(result["error"]["relative_error"], 1e-3);
  EXPECT_LT(result["error"]["relative_error"], 6e-2);
  const auto stored = stored_in(out);
  EXPECT_EQ(stored.at("k").type, "F8_E4M3");
  EXPECT_EQ(stored.at("q_scale").shape, (Shape{1, 8}));
  EXPECT_EQ(stored.at("k_scale").shape, (Shape{1, 2, 1}));
  EXPECT_EQ(stored.at("sinks"), stored_in(kExample).at("sinks"));
  const json run = document({"run", out, "--causal", "--check", "--no-time", "--device", "cpu"});
  EXPECT_EQ(run["check"]["passed"], true) << run["check"];
}

TEST(Quantize, HasAScaleForWhatIsAskedFor) {
  const Scratch scratch;
  const std::string out = scratch.path("fp8.safetensors");
  const auto shapes = [&](const Words& more) {
    Words words = quantize_with({"--out", out});
    words.insert(words.end(), more.begin(), more.end());
    document(words);
    const auto stored = stored_in(out);
    return std::vector<Shape>{stored.contains("q_scale") ? stored.at("q_scale").shape : Shape{},
                              stored.at("k_scale").shape, stored.at("v_scale").shape};
  };
  EXPECT_THAT(shapes({"--scales", "tensor"}),
              ElementsAre(Shape{1, 1}, Shape{1, 1, 1}, Shape{1, 1, 1}));
  EXPECT_THAT(shapes({"--scales", "entry", "--kv-scale-block", "1"}),
              ElementsAre(Shape{2, 1}, Shape{2, 1, 40}, Shape{2, 1, 40}));
  EXPECT_THAT(shapes({"--kv-scale-block", "16", "--keep-q", "--to", "f8e5m2"}),
              ElementsAre(Shape{}, Shape{2, 2, 3}, Shape{2, 2, 3}));
  EXPECT_EQ(stored_in(out).at("q").type, "BF16");
  EXPECT_EQ(stored_in(out).at("v").type, "F8_E5M2");
}

// The LSE is right after adding the shift: without it the error would be up to 0.5.
TEST(Quantize, SmoothsK) {
  const Scratch scratch;
  const std::string out = scratch.path("fp8.safetensors");
  const json result = document(
      quantize_with({"--smooth-k", "--causal", "--error", "--layout", "bshd", "--out", out}));
  EXPECT_EQ(stored_in(out).at("k_mean").shape, (Shape{2, 2, 32}));
  EXPECT_EQ(stored_in(out).at("k").shape, (Shape{2, 40, 2, 32}));
  EXPECT_LT(result["error"]["lse_error"], 0.2);
  const Outcome text = flashcore_command(quantize_with({"--kv-scale-block", "8", "--out", out}));
  EXPECT_THAT(text.out, HasSubstr("becomes  q f8e4m3 [2, 4, 40, 32]"));
  EXPECT_THAT(text.out, HasSubstr("run it with --kv-scale-block 8"));
}

TEST(Quantize, RefusesInOneSentence) {
  const Scratch scratch;
  const std::string out = scratch.path("fp8.safetensors");
  const auto refused = [&](const Words& more, const std::string& sentence) {
    expect_refused(quantize_with(more), 2, sentence);
    EXPECT_TRUE(scratch.names().empty());
  };
  refused({}, "--out: is missing, wanted a .safetensors file to write (or --error, --check)");
  refused({"--out", scratch.path("x.npy")}, "wanted a file named .safetensors");
  refused({"--out", scratch.path("none/x.safetensors")}, "wanted a writable directory");
  refused({"--out", out, "--scales", "row"}, "--scales: is 'row', wanted tensor|entry|head");
  refused({"--out", out, "--to", "f16"}, "--to: is 'f16', wanted f8e4m3|f8e5m2");
  refused({"--out", out, "--threads", "-1"}, "--threads: is -1, wanted 0 (all) or more");
  refused({"--out", out, "--smooth-k", "--with", "sinks"}, "sinks: are given with a smoothed k");
  refused({"--out", out, "--smooth-k", "--softcap", "5"}, "softcap: is 5 with a smoothed k");
  refused({"--out", out, "--smooth-k", "--paged", "8"}, "page_table: is given with a smoothed k");
  expect_refused({"quantize", "--shape", "1,2,8,8", "--dtype", "f8e5m2", "--out", out}, 2,
                 "q: dtype is f8e5m2, wanted f32, f16 or bf16");
  EXPECT_TRUE(scratch.names().empty());
  expect_refused({"quantize", kExample, "--out", kExample}, 2, "is an input, wanted another file");
}

}  // namespace
}  // namespace flashcore::tests
