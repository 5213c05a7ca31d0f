// The built command from the outside: exit codes, JSON, messages, and files that stay whole.
#include "tests/cli/command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bench/evidence/evidence_file.hpp"
#include "bench/io/npy.hpp"
#include "bench/io/safetensors.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Help, IsThereForEveryCommand) {
  const Outcome top = flashcore_command({"--help"});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_THAT(top.out, HasSubstr("Exit codes"));
  EXPECT_EQ(flashcore_command({"help"}).out, top.out);
  for (const char* const command :
       {"run", "quantize", "verify", "bench", "compare", "explain", "info"}) {
    EXPECT_THAT(top.out, HasSubstr(std::string("\n  ") + command));
    const Outcome help = flashcore_command({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:\n  flashcore "), HasSubstr("--json")));
    EXPECT_EQ(flashcore_command({"help", command}).out, help.out);
  }
  EXPECT_THAT(flashcore_command({"verify", "--help"}).out, HasSubstr("shapes (default 100)"));
  EXPECT_THAT(flashcore_command({"--version"}).out, StartsWith("flashcore "));
}

TEST(Usage, MistakesAreOneSentenceAndExitCode2) {
  EXPECT_EQ(flashcore_command({}).exit_code, 2);
  expect_refused({"other"}, 2, "command: is 'other', wanted one of run, quantize, verify");
  expect_refused({"help", "other"}, 2, "command: is 'other', wanted one of run, quantize, verify");
  expect_refused({"run", "--nonsense"}, 2, "--nonsense");
  expect_refused({"run"}, 2, "tensors: there are none");
  expect_refused({"run", "--shape", "1,2,3"}, 2, "--shape: is '1,2,3', wanted B,H,S,D");
  expect_refused({"run", "--threads", "many"}, 2, "--threads: is 'many', wanted a whole number");
  expect_refused({"run", "--softcap", "x"}, 2, "--softcap: is 'x', wanted a number");
  expect_refused({"run", "--seed", "-1"}, 2, "--seed: is '-1', wanted a whole number from 0 on");
  expect_refused({"run", "--layout", "sbhd"}, 2, "--layout: is 'sbhd', wanted bhsd|bshd");
  expect_refused(small_with({"--dtype", "f8"}), 2, "--dtype: is 'f8', wanted f32");
  expect_refused(small_with({"--with", "q"}), 2, "--with: is 'q', wanted bias");
  expect_refused(small_with({"--window", "3"}), 2, "--window: is '3', wanted L,R");
  expect_refused(small_with({"--kernel", "other"}), 2, "kernel: is 'other', wanted one of");
  expect_refused(small_with({"--device", "gpu"}), 2, "--device: ");
  expect_refused({"run", "--shape", "1,4,8,8", "--device", "gpu"}, 2, "--device: is 'gpu'");
  expect_refused({"run", "--shape", "1,4,8,8", "--heads-kv", "3"}, 2, "k: shape [1, 3, 8, 8]");
  expect_refused({"run", "--shape", "1,4,-8,8"}, 2, "q: shape [1, 4, -8, 8] has extent -8");
  expect_refused({"verify", "--shapes", "huge"}, 2, "--shapes: is 'huge'");
  expect_refused({"verify", "--random", "-1"}, 2, "--random: is -1");
  expect_refused({"verify", "--shapes", "none", "--random", "0"}, 2,
                 "--random: is 0 with --shapes none");
  expect_refused({"verify", "--largest-seqlen", "0"}, 2, "--largest-seqlen: is 0");
  expect_refused({"verify", "--largest-head-dim", "-8"}, 2, "--largest-head-dim: is -8");
  expect_refused({"verify", "--most-heads", "-1"}, 2, "--most-heads: is -1");
  expect_refused({"verify", "--most-heads", "4", "--batch-invariant"}, 2, "--most-heads: is 4");
  expect_refused({"verify", "--device", "cpu", "--sanitizers"}, 3, "--sanitizers: is given");
  expect_refused({"verify", "--errors", "other"}, 2, "--errors: is 'other', wanted fp8 or");
  expect_refused({"verify", "--errors", "fp8", "--device", "cpu"}, 3, "--errors: is fp8 on a CPU");
  expect_refused({"verify", "--seqlen", "0"}, 2, "--seqlen: is 0, wanted 1 to 65536");
  expect_refused({"bench", "--suite", "other"}, 2, "--suite: is 'other', wanted one of gates");
}

TEST(Usage, ErrorsAreJsonToo) {
  const Outcome outcome = flashcore_command({"run", "--shape", "1,2", "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  const json parsed = json::parse(outcome.out);
  EXPECT_EQ(parsed["status"], "error");
  EXPECT_EQ(parsed["code"], "invalid_argument");
  EXPECT_THAT(parsed["message"].get<std::string>(), HasSubstr("--shape"));
  const json usage = json::parse(flashcore_command({"run", "--json", "--nonsense"}).out);
  EXPECT_EQ(usage["status"], "error");
}

// Runs the command in a shell that prepares its streams or limits, as "exec \"$@\" >/dev/full".
Outcome under_shell(const std::string& script, const Words& words) {
  Words all = {"/bin/sh", "-c", script, "sh", FLASHCORE_COMMAND};
  all.insert(all.end(), words.begin(), words.end());
  return run_process(std::move(all));
}

// A command line of every subcommand that succeeds and prints something, with and without --json.
std::vector<Words> talkative(const Scratch& scratch) {
  const std::string evidence = scratch.path("verified.json");
  EXPECT_EQ(flashcore_command({"bench", "--shape", "1,1,8,8", "--device", "cpu", "--out", evidence})
                .exit_code,
            0);
  std::vector<Words> all = {
      small_with({}),
      {"info"},
      {"explain", "--shape", "1,1,8,8"},
      {"verify", "--shapes", "none", "--random", "1", "--device", "cpu"},
      {"bench", "--shape", "1,1,8,8", "--device", "cpu"},
      {"compare", evidence, evidence},
      {"ladder", "--list"},
  };
  const size_t plain = all.size();
  for (size_t i = 0; i < plain; ++i) {
    all.push_back(all[i]);
    all.back().emplace_back("--json");
  }
  for (const char* const command :
       {"run", "quantize", "verify", "bench", "compare", "explain", "info", "ladder", "profile"}) {
    all.push_back({command, "--help"});
  }
  all.push_back({"--help"});
  all.push_back({"--version"});
  return all;
}

TEST(Output, ThatCannotBeWrittenIsExitCode2) {
  const Scratch scratch;
  for (const Words& words : talkative(scratch)) {
    // A build without CUDA has no ladder; the command says so itself.
    if (words[0] == "ladder" && flashcore_command(words).exit_code != 0) continue;
    for (const auto& [script, why] :
         {std::pair{"exec \"$@\" >/dev/full", "No space left on device"},
          {"exec \"$@\" >&-", "Bad file descriptor"}}) {
      const Outcome outcome = under_shell(script, words);
      EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(words) << script << outcome.err;
      EXPECT_THAT(outcome.err,
                  HasSubstr("flashcore: error: stdout: cannot be written (" + std::string(why)))
          << testing::PrintToString(words) << script;
    }
  }
}

TEST(Output, AStreamThatIsClosedIsNotTheNextFile) {
  const Scratch scratch;
  const std::string out = scratch.path("o.npy");
  EXPECT_EQ(under_shell("exec \"$@\" <&- >&- 2>&-", small_with({"--out", out})).exit_code, 2);
  EXPECT_EQ(flashcore_command(small_with({"--out", scratch.path("again.npy")})).exit_code, 0);
  EXPECT_EQ(scratch.read("o.npy"), scratch.read("again.npy"));
  EXPECT_EQ(under_shell("exec \"$@\" 2>&-", {"run", "--nonsense"}).exit_code, 2);
  EXPECT_EQ(under_shell("exec \"$@\" 2>&-", {"info", "--json"}).exit_code, 0);
}

// A limit on file sizes simulates a full disk: the write fails in the same way.
TEST(Output, ToAFileThatDoesNotFitIsExitCode2AndLeavesNothing) {
  const Scratch scratch;
  const std::string status = "trap '' XFSZ; ulimit -f 1; { \"$@\"; echo $? >&2; } | cat";
  for (const Words& words : std::vector<Words>{
           small_with({"--out", scratch.path("o.safetensors")}),
           small_with({"--out", scratch.path("o.npy")}),
           small_with({"--lse-out", scratch.path("lse.npy")}),
           small_with({"--save-inputs", scratch.path("inputs.safetensors")}),
           {"verify", "--shapes", "none", "--random", "1", "--device", "cpu", "--out",
            scratch.path("verified.json")},
           {"bench", "--shape", "1,1,8,8", "--device", "cpu", "--out", scratch.path("times.json")},
           {"bench", "--shape", "1,1,8,8", "--device", "cpu", "--deadline", "0", "--out",
            scratch.path("times.json")}}) {
    const Outcome outcome = under_shell(status, words);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("cannot be written (File too large)"), EndsWith("\n2\n")))
        << testing::PrintToString(words);
    EXPECT_THAT(scratch.names(), IsEmpty()) << testing::PrintToString(words);
  }
}

TEST(Memory, ProblemsTooLargeForThisMachineAreRefused) {
  expect_refused({"run", "--shape", "1000,1000,1000000,128", "--device", "cpu"}, 4,
                 "memory: the tensors take");
}

TEST(Unsupported, IsExitCode3) {
  expect_refused(small_with({"--dtype", "f32", "--kernel", "naive"}), 3, "kernel naive: ");
  const Outcome outcome = flashcore_command({"explain", "--shape", "1,4,8,8", "--dtype", "f32",
                                             "--kernel", "naive", "--device", "cpu", "--json"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(json::parse(outcome.out)["status"], "unsupported");
  if (!build_info().cuda) {
    expect_refused({"ladder", "--list"}, 3, "ladder: needs the CUDA kernels");
    expect_refused({"profile", "forward_sm80_throughput", "--causal"}, 3,
                   "profile: needs the CUDA kernels");
  }
}

TEST(Run, ChecksAndTimes) {
  const json result = document(small_with({"--causal", "--check"}));
  EXPECT_EQ(result["status"], "ok");
  EXPECT_EQ(result["check"]["passed"], true);
  EXPECT_GT(result["check"]["max_scaled_error"], 0);
  EXPECT_GE(result["time"]["samples"], 5);
  EXPECT_GT(result["time"]["gflops"], 0);
  EXPECT_EQ(result["flop"], 4.0 * 2 * 4 * 40 * 40 * 32 / 2);
  EXPECT_EQ(result["problem"]["tensors"]["k"]["shape"], json({2, 2, 40, 32}));
  EXPECT_FALSE(result["kernel"].get<std::string>().empty());
  EXPECT_FALSE(result["reason"].get<std::string>().empty());
}

TEST(Run, TellsPeopleTheSame) {
  const Outcome outcome = flashcore_command(small_with({"--causal", "--check"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  for (const char* const part : {"problem  q f16 [2, 4, 40, 32]", "causal, bottom_right", "device",
                                 "kernel", "passed", "p50", "FLOP/s"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));  // no colour without a terminal
}

TEST(Run, EveryDtypeAndFeature) {
  for (const char* const dtype : {"f32", "f16", "bf16", "f8e4m3", "f8e5m2"}) {
    SCOPED_TRACE(dtype);
    Words words = small_with({"--dtype",        dtype,
                              "--check",        "--no-time",
                              "--with",         "bias,mask,sinks,alibi_slopes,seqlens_kv",
                              "--window",       "16,3",
                              "--softcap",      "20",
                              "--dropout",      "0.25",
                              "--dropout-seed", "9",
                              "--scale",        "0.2",
                              "--head-dim-v",   "24",
                              "--seqlen-kv",    "33"});
    const json result = document(words);
    EXPECT_EQ(result["check"]["passed"], true) << result["check"]["failure"];
    EXPECT_TRUE(result["time"].is_null());
  }
}

TEST(Run, MixesOfFp8) {
  for (const Words& types :
       {Words{"--dtype", "f8e4m3", "--kv-dtype", "f8e5m2"},
        Words{"--dtype", "f8e5m2", "--v-dtype", "f8e4m3"},
        Words{"--dtype", "f16", "--kv-dtype", "f8e4m3", "--v-dtype", "f8e5m2"}}) {
    Words words = small_with(types);
    words.insert(words.end(), {"--check", "--no-time", "--with", "v_scale"});
    const json result = document(words);
    EXPECT_EQ(result["check"]["passed"], true) << result["check"]["failure"];
  }
  EXPECT_EQ(document(small_with({"--dtype", "f8e5m2", "--v-dtype", "f8e4m3",
                                 "--no-time"}))["problem"]["tensors"]["v"]["dtype"],
            "f8e4m3");
  // A file has its own types, which the same options change.
  const Scratch scratch;
  const std::string file = scratch.path("mix.safetensors");
  document(
      small_with({"--dtype", "f8e4m3", "--v-dtype", "f8e5m2", "--no-time", "--save-inputs", file}));
  const auto types_of = [&](Words options) {
    Words all = {"run", file, "--device", "cpu", "--no-time", "--check"};
    all.insert(all.end(), options.begin(), options.end());
    const json result = document(all);
    EXPECT_EQ(result["check"]["passed"], true) << result["check"]["failure"];
    const json& tensors = result["problem"]["tensors"];
    std::string text;
    for (const char* const name : {"q", "k", "v"}) {
      text += tensors[name]["dtype"].get<std::string>() + ' ';
    }
    return text;
  };
  EXPECT_EQ(types_of({}), "f8e4m3 f8e4m3 f8e5m2 ");
  EXPECT_EQ(types_of({"--dtype", "f8e5m2"}), "f8e5m2 f8e5m2 f8e5m2 ");
  EXPECT_EQ(types_of({"--kv-dtype", "f8e5m2", "--v-dtype", "f8e4m3"}), "f8e4m3 f8e5m2 f8e4m3 ");
  Words words = small_with({"--v-dtype", "f8e4m3"});
  expect_refused(words, 2, "v: dtype is f8e4m3, wanted k's f16");
}

TEST(Run, AFailedCheckIsExitCode1AndWritesNothing) {
  const Scratch scratch;
  // Scores in the hundreds, rounded to f16 by the naive computation.
  const Outcome outcome = flashcore_command({"run", "--shape", "1,2,64,128", "--scale", "4",
                                             "--kernel", "naive", "--device", "cpu", "--check",
                                             "--json", "--out", scratch.path("o.safetensors")});
  EXPECT_EQ(outcome.exit_code, 1);
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["status"], "check_failed");
  EXPECT_EQ(result["check"]["passed"], false);
  EXPECT_THAT(result["check"]["failure"].get<std::string>(), HasSubstr("limit"));
  EXPECT_TRUE(result["time"].is_null());  // no time without a gate
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("FAILED"), HasSubstr("was not written")));
  EXPECT_THAT(scratch.names(), IsEmpty());
}

TEST(Run, FromItsOwnSavedInputsGivesTheSameBits) {
  const Scratch scratch;
  const std::string inputs = scratch.path("in.safetensors"), first = scratch.path("1.safetensors"),
                    second = scratch.path("2.safetensors");
  document(small_with({"--with", "bias,mask,sinks,alibi_slopes,seqlens_kv", "--causal", "--no-time",
                       "--seed", "3", "--save-inputs", inputs, "--out", first}));
  const json again = document(
      {"run", inputs, "--causal", "--no-time", "--check", "--device", "cpu", "--out", second});
  EXPECT_EQ(again["check"]["passed"], true);
  const auto a = stored_in(first), b = stored_in(second);
  EXPECT_EQ(a, b);
  EXPECT_THAT(a.at("o").shape, ElementsAre(2, 4, 40, 32));
  EXPECT_EQ(a.at("o").type, "F16");
  EXPECT_EQ(a.at("lse").type, "F32");

  // Without one of the inputs the result differs.
  document({"run", inputs, "--causal", "--no-time", "--device", "cpu", "--without", "bias", "--out",
            second});
  EXPECT_NE(stored_in(second).at("o"), a.at("o"));
}

TEST(Run, StoresFp8AndTellsLargestValues) {
  const Scratch scratch;
  const std::string inputs = scratch.path("in.safetensors"), first = scratch.path("1.safetensors"),
                    second = scratch.path("2.safetensors");
  const json result =
      document(small_with({"--out-dtype", "f8e4m3", "--with", "o_scale", "--amax", "--check",
                           "--no-time", "--save-inputs", inputs, "--out", first}));
  EXPECT_EQ(result["check"]["passed"], true);
  EXPECT_GT(result["amax_o"], 0.5);
  EXPECT_GT(result["amax_s"], 0.1);
  EXPECT_LE(result["amax_s"], 1);
  const auto a = stored_in(first);
  EXPECT_EQ(a.at("o").type, "F8_E4M3");
  EXPECT_THAT(a.at("amax_o").shape, ElementsAre(2, 4));
  EXPECT_EQ(a.at("amax_s").type, "F32");
  EXPECT_THAT(stored_in(inputs).at("o_scale").shape, ElementsAre(1, 4));
  document({"run", inputs, "--out-dtype", "f8e4m3", "--amax", "--no-time", "--check", "--device",
            "cpu", "--out", second});
  EXPECT_EQ(stored_in(second), a);
  expect_refused({"run", inputs, "--device", "cpu"}, 2, "o_scale: is present with an o of f16");
  expect_refused(small_with({"--backward", "--amax"}), 2, "--amax: is given with --backward");
}

// Writes a tensor of a file as a .npy file, byte for byte.
void write_array(const std::string& path, const Stored& tensor, DType dtype) {
  const io::OutputTensor output{"", dtype, tensor.shape, std::as_bytes(std::span(tensor.bytes))};
  const Status status = io::write_npy(path, output);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Run, ReadsAndWritesArraysInBothLayouts) {
  const Scratch scratch;
  const std::string inputs = scratch.path("in.safetensors"), out = scratch.path("o.safetensors");
  document(small_with({"--layout", "bshd", "--no-time", "--save-inputs", inputs, "--out", out}));
  const auto saved = stored_in(inputs);
  EXPECT_THAT(saved.at("q").shape, ElementsAre(2, 40, 4, 32));
  EXPECT_THAT(saved.at("k").shape, ElementsAre(2, 40, 2, 32));
  EXPECT_THAT(stored_in(out).at("o").shape, ElementsAre(2, 40, 4, 32));
  EXPECT_THAT(stored_in(out).at("lse").shape, ElementsAre(2, 4, 40));

  Words words = {"run", "--layout", "bshd", "--no-time", "--check", "--device", "cpu"};
  for (const char* const name : {"q", "k", "v"}) {
    const std::string path = scratch.path(std::string(name) + ".npy");
    write_array(path, saved.at(name), DType::f16);
    words.insert(words.end(), {std::string("--") + name, path});
  }
  words.insert(words.end(), {"--out", scratch.path("o.npy"), "--lse-out", scratch.path("lse.npy")});
  EXPECT_EQ(document(words)["check"]["passed"], true);
  const auto file = io::open_file(scratch.path("o.npy"));
  ASSERT_TRUE(file.ok());
  const auto info = io::list_npy(**file);
  ASSERT_TRUE(info.ok());
  EXPECT_THAT(info->shape, ElementsAre(2, 40, 4, 32));
  std::string bytes(info->bytes, '\0');
  ASSERT_TRUE((*file)->read(info->offset, std::as_writable_bytes(std::span(bytes))).ok());
  EXPECT_EQ(bytes, stored_in(out).at("o").bytes);
  EXPECT_TRUE(std::filesystem::exists(scratch.path("lse.npy")));
}

// A .safetensors file of zeros with the given names, types and shapes.
struct Zeros {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

std::string write_zeros(const Scratch& scratch, const std::string& name,
                        const std::vector<Zeros>& tensors) {
  std::vector<std::string> data;
  std::vector<io::OutputTensor> outputs;
  for (const Zeros& tensor : tensors) {
    data.emplace_back(*io::element_count(tensor.shape) * size_of(tensor.dtype), '\0');
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    outputs.push_back(
        {tensors[i].name, tensors[i].dtype, tensors[i].shape, std::as_bytes(std::span(data[i]))});
  }
  const Status status = io::write_safetensors(scratch.path(name), outputs);
  EXPECT_TRUE(status.ok()) << status.message();
  return scratch.path(name);
}

TEST(Run, TakesOtherNamesAndConvertsTypes) {
  const Scratch scratch;
  const std::string file = write_zeros(scratch, "in.safetensors",
                                       {{"query", DType::f64, {1, 2, 8, 16}},
                                        {"k", DType::f64, {1, 1, 9, 16}},
                                        {"v", DType::f64, {1, 1, 9, 16}},
                                        {"sinks", DType::bf16, {2}},
                                        {"mask", DType::boolean, {8, 9}}});
  expect_refused({"run", file}, 2, "has no tensor 'q' (it has k, mask, query, sinks, v)");
  expect_refused({"run", file, "--q", "other"}, 2, "q: is given as 'other', wanted a tensor of");
  expect_refused({"run", file, "--q", "query"}, 2, "--dtype f32 converts it");
  const json result = document(
      {"run", file, "--q", "query", "--dtype", "bf16", "--check", "--no-time", "--device", "cpu"});
  EXPECT_EQ(result["check"]["passed"], true);
  const json& tensors = result["problem"]["tensors"];
  EXPECT_EQ(tensors["q"]["dtype"], "bf16");
  EXPECT_EQ(tensors["sinks"]["dtype"], "f32");
  EXPECT_EQ(tensors["mask"]["shape"], json({1, 1, 8, 9}));
}

TEST(Run, ComputesPackedBatches) {
  const Scratch scratch;
  std::string lengths(12, '\0');
  const int32_t offsets[] = {0, 3, 10};
  std::memcpy(lengths.data(), offsets, sizeof(offsets));
  const std::string tokens(10 * 2 * 16 * 2, '\0');
  const auto bytes = [](const std::string& data) { return std::as_bytes(std::span(data)); };
  const std::string file = scratch.path("packed.safetensors");
  ASSERT_TRUE(
      io::write_safetensors(
          file, std::vector<io::OutputTensor>{{"q", DType::f16, {10, 2, 16}, bytes(tokens)},
                                              {"k", DType::f16, {10, 2, 16}, bytes(tokens)},
                                              {"v", DType::f16, {10, 2, 16}, bytes(tokens)},
                                              {"cu_seqlens_q", DType::i32, {3}, bytes(lengths)},
                                              {"cu_seqlens_kv", DType::i32, {3}, bytes(lengths)}})
          .ok());
  const json result = document({"run", file, "--causal", "--check", "--no-time", "--device", "cpu",
                                "--out", scratch.path("o.safetensors")});
  EXPECT_EQ(result["check"]["passed"], true);
  EXPECT_THAT(stored_in(scratch.path("o.safetensors")).at("lse").shape, ElementsAre(10, 2));
  // 3 and 7 queries, causal.
  EXPECT_EQ(result["flop"], 4.0 * 2 * 16 * (6 + 28));
}

TEST(Run, RefusesBadFilesAndLosesNothing) {
  const Scratch scratch;
  const std::string good = write_zeros(scratch, "good.safetensors",
                                       {{"q", DType::f16, {1, 2, 8, 16}},
                                        {"k", DType::f16, {1, 2, 8, 16}},
                                        {"v", DType::f16, {1, 2, 8, 16}}});
  const std::string whole = scratch.read("good.safetensors");
  const std::string cut = scratch.write("cut.safetensors", whole.substr(0, whole.size() - 100));
  const std::string text = scratch.write("text.safetensors", "this is not a tensor file");
  const std::string escape =
      scratch.write("escape.safetensors", std::string("\x29\0\0\0\0\0\0\0", 8) +
                                              R"({"\u001b[2J":{"dtype":5,"shape":[],"x":[]}})");
  const std::string array = scratch.write("a.npy", "junk");
  const std::string out = scratch.write("out.safetensors", "kept");
  const auto names = scratch.names();

  expect_refused({"run", scratch.path("missing.safetensors"), "--out", out}, 2, "cannot be opened");
  expect_refused({"run", scratch.path("."), "--out", out}, 2, "is not a regular file");
  expect_refused({"run", cut, "--out", out}, 2, "has data_offsets");
  expect_refused({"run", text, "--out", out}, 2, "is no .safetensors file, or was cut off");
  expect_refused({"run", array, "--out", out}, 2, "is one array, wanted a .safetensors file");
  expect_refused({"run", good, "--q", array, "--out", out}, 2, "a.npy: has 4 bytes");
  const Outcome escaped = flashcore_command({"run", escape, "--out", out});
  EXPECT_EQ(escaped.exit_code, 2);
  EXPECT_THAT(escaped.err, Not(HasSubstr("\x1b")));

  expect_refused({"run", good, "--out", good}, 2, "is an input, wanted another file");
  std::filesystem::create_hard_link(good, scratch.path("link.safetensors"));
  expect_refused({"run", good, "--out", scratch.path("link.safetensors")}, 2, "is an input");
  std::filesystem::remove(scratch.path("link.safetensors"));
  expect_refused({"run", good, "--save-inputs", good}, 2, "is an input");
  expect_refused({"run", good, "--out", scratch.path("o.txt")}, 2,
                 "wanted a file named .safetensors or .npy");
  expect_refused({"run", good, "--out", scratch.path("no/o.npy")}, 2,
                 "wanted a writable directory");
  expect_refused({"run", good, "--out", out, "--save-inputs", out}, 2, "is another output too");
  expect_refused({"run", good, "--dtype", "bf16", "--out", scratch.path("o.npy")}, 2,
                 ".npy has no bf16");
  expect_refused({"run", good, "--no-lse", "--lse-out", scratch.path("l.npy")}, 2, "--no-lse");
  expect_refused({"run", good, "--shape", "1,2,3,4"}, 2, "wanted either a shape or files");

  EXPECT_EQ(scratch.names(), names);
  EXPECT_EQ(scratch.read("good.safetensors"), whole);
  EXPECT_EQ(scratch.read("out.safetensors"), "kept");
}

TEST(Run, ComputesTheExample) {
  const Scratch scratch;
  const std::string example = std::string(FLASHCORE_EXAMPLES) + "/attention.safetensors";
  const json result = document({"run", example, "--causal", "--check", "--device", "cpu", "--out",
                                scratch.path("result.safetensors")});
  EXPECT_EQ(result["check"]["passed"], true);
  EXPECT_LT(std::filesystem::file_size(example), 100'000U);
  EXPECT_THAT(scratch.names(), ElementsAre("result.safetensors"));
}

TEST(Environment, ForcesAKernelButNotTheReference) {
  Words words = small_with({"--check", "--no-time", "--json"});
  const Outcome outcome = flashcore_command(words, {"FLASHCORE_KERNEL=naive"});
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["kernel"], "naive");
  // If the reference were forced, too, there would be no error.
  EXPECT_GT(result["check"]["relative_error"], 1e-6);
}

TEST(Environment, AndOptionsReadAFormerNameAsTheNewOne) {
  constexpr const char* kSentence =
      "kernel: is 'forward_sm90_throughput', wanted one of this device's: cpu_simd";
  expect_refused(small_with({"--kernel", "forward_sm90"}), 2, kSentence);
  const Outcome outcome = flashcore_command(small_with({}), {"FLASHCORE_KERNEL=forward_sm90"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr(kSentence));
}

TEST(Explain, HasAVerdictForEveryKernel) {
  const json result = document(
      {"explain", "--shape", "1,4,64,32", "--dtype", "f32", "--causal", "--device", "cpu"});
  std::map<std::string, json> kernels;
  int chosen = 0;
  for (const json& kernel : result["kernels"]) {
    kernels[kernel["kernel"]] = kernel;
    chosen += kernel["chosen"].get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(kernels.at("reference")["refusal"], "");
  EXPECT_NE(kernels.at("naive")["refusal"], "");
  const Outcome people = flashcore_command({"explain", "--shape", "1,4,64,32", "--dtype", "f32"});
  EXPECT_THAT(people.out, AllOf(HasSubstr("reference  yes"), HasSubstr("naive")));
}

// Every kernel's verdict for a GPU that need not be here, with a given number of SMs.
TEST(Explain, AGpuThatIsNotHere) {
  const auto words = [](const std::string& device) {
    return Words{"explain", "--shape", "2,8,512,64", "--device", device};
  };
  for (const char* const none :
       {"H1000", "sm_", "sm_75", "sm_90:", "sm_90:0", "sm_90:x", "sm_90:1:1"}) {
    expect_refused(words(none), 2,
                   "wanted auto, cpu, cuda, cuda:N, sim, sim:N, or a GPU that need not");
  }
  if (flashcore_command(words("sm_90")).exit_code == 3) {
    EXPECT_FALSE(build_info().cuda);
    expect_refused(words("sm_90"), 3,
                   "device: is NVIDIA H100, wanted a build with the kernels of GPUs");
    return;
  }
  for (const auto& [name, heading, family] :
       {std::tuple{"nvidia h100", "NVIDIA H100 of compute capability 9.0 with 132 SMs, not here",
                   "sm90"},
        {"sm_90", "NVIDIA H100 of compute capability 9.0 with 132 SMs, not here", "sm90"},
        {"sm_90:114", "GPU of compute capability 9.0 with 114 SMs, not here", "sm90"},
        {"A100", "NVIDIA A100 of compute capability 8.0 with 108 SMs, not here", "sm80"}}) {
    const Outcome people = flashcore_command(words(name));
    if (people.exit_code == 3) {  // a build for other GPUs
      EXPECT_THAT(people.out, HasSubstr("this build has code for"));
      continue;
    }
    EXPECT_EQ(people.exit_code, 0) << people.err;
    EXPECT_THAT(people.out, HasSubstr(heading));
    int chosen = 0;
    const json result = document(words(name));
    for (const json& kernel : result["kernels"]) {
      if (!kernel["chosen"].get<bool>()) continue;
      ++chosen;
      EXPECT_THAT(kernel["kernel"].get<std::string>(), HasSubstr(family));
    }
    EXPECT_EQ(chosen, 1) << name;
  }
  EXPECT_EQ(flashcore_command(words("A100")).out.find("forward_sm90_throughput  yes"),
            std::string::npos);
}

TEST(Info, NamesTheBuildAndTheDevices) {
  const json result = document({"info"});
  EXPECT_THAT(result["commit"].get<std::string>(), testing::MatchesRegex("([0-9a-f]{40})?"));
  EXPECT_TRUE(result["modified"].is_boolean());
  EXPECT_THAT(result["built"].get<std::string>(),
              testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}"));
  EXPECT_EQ(result["devices"][0]["device"], "cpu");
  EXPECT_GT(result["devices"][0]["multiprocessors"], 0);
  EXPECT_FALSE(result["version"].get<std::string>().empty());
  EXPECT_THAT(flashcore_command({"info"}).out, HasSubstr("device     cpu"));
}

TEST(Verify, HoldsKernelsToTheGates) {
  const json result = document({"verify", "--shapes", "small", "--seeds", "0", "--random", "10",
                                "--random-seed", "5", "--device", "cpu"});
  EXPECT_EQ(result["status"], "ok");
  ASSERT_GE(result["table"].size(), 2U);
  for (const json& row : result["table"]) EXPECT_EQ(row["passed"], true) << row;
  EXPECT_EQ(result["random"]["problems"], 10);
  EXPECT_EQ(result["random"]["first_seed"], 5);
}

TEST(Verify, WritesEvidence) {
  const Scratch folder;
  const std::string path = folder.path("gates.json");
  document({"verify", "--shapes", "small,scores/sink/f32,scores/softcap/f32/1/", "--seeds", "0",
            "--random", "6", "--largest-seqlen", "40", "--largest-head-dim", "24", "--kernel",
            "cpu_simd", "--device", "cpu", "--out", path});
  const Result<nlohmann::ordered_json> read = bench::read_evidence(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const nlohmann::ordered_json& evidence = *read;
  EXPECT_EQ(evidence["kind"], "verify");
  EXPECT_EQ(evidence["table"].size(), 2U);
  EXPECT_EQ(evidence["scores"]["problems"], 16);
  EXPECT_EQ(evidence["scores"]["kernels"][0]["passed"], 16);
  EXPECT_TRUE(evidence["scores"]["failures"].empty());
  EXPECT_EQ(evidence["random"]["largest_seqlen"], 40);
  EXPECT_EQ(evidence["random"]["kernels"][0]["passed"], 6);
  EXPECT_FALSE(evidence["fingerprints"]["cpu_simd"].get<std::string>().empty());
  EXPECT_TRUE(evidence["sanitizers"].empty());
}

TEST(Verify, RunsUnjudgedForTheSanitizers) {
  const Outcome outcome =
      flashcore_command({"verify", "--only-run", "--random", "2", "--largest-seqlen", "16",
                         "--kernel", "cpu_simd", "--device", "cpu"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out,
            "flashcore: begins cpu_simd\nflashcore: ends cpu_simd\n"
            "flashcore: begins cpu_simd\nflashcore: ends cpu_simd\n");
}

TEST(Verify, SaysHowToRepeatAFailure) {
  // The kernel "naive" is the baseline of 16-bit errors, and need not pass the gates.
  const Outcome outcome = flashcore_command({"verify", "--shapes", "none", "--random", "40",
                                             "--kernel", "naive", "--device", "cpu", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["status"], "check_failed");
  ASSERT_FALSE(result["random"]["failures"].empty());
  const json& failure = result["random"]["failures"][0];
  const std::string repeat = failure["repeat"];
  EXPECT_THAT(outcome.err, HasSubstr(repeat));
  const std::string seed = std::to_string(failure["seed"].get<uint64_t>());
  EXPECT_EQ(repeat,
            "flashcore verify --shapes none --random 1 --random-seed " + seed + " --kernel naive");
  const Outcome again = flashcore_command({"verify", "--shapes", "none", "--random", "1",
                                           "--random-seed", seed, "--kernel", "naive", "--json"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(json::parse(again.out)["random"]["failures"][0]["failure"], failure["failure"]);
}

TEST(Verify, JudgesHardScores) {
  // In bf16 the naive kernel can represent these scores; the sink dominates all of them.
  EXPECT_EQ(document({"verify", "--shapes", "scores/sink/bf16/3.4e+38", "--random", "0", "--kernel",
                      "naive"})["scores"]["kernels"][0]["passed"],
            1);
  // In f16 it cannot: a bias of -1e9 becomes -inf, which removes the row.
  const std::string name = "scores/bias/f16/f32/-1e9/whole";
  const Outcome outcome =
      flashcore_command({"verify", "--shapes", name + "/one-query", "--random", "0", "--kernel",
                         "naive", "--device", "cpu", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result["scores"]["failures"].size(), 1U);
  const json& failure = result["scores"]["failures"][0];
  EXPECT_THAT(failure["failure"].get<std::string>(),
              HasSubstr("lse[0, 0, 0] is -inf, wanted -99999"));
  EXPECT_EQ(failure["repeat"],
            "flashcore verify --shapes " + name + "/one-query --random 0 --kernel naive");
  EXPECT_TRUE(result["table"].empty());
  expect_refused({"verify", "--shapes", "scores/none"}, 2, "--shapes: is 'scores/none'");
}

TEST(Bench, TimesWhatPassedItsGate) {
  const json result =
      document({"bench", "--shape", "1,2,64,32", "--kernel", "reference", "--device", "cpu"});
  ASSERT_EQ(result["cases"].size(), 1U);
  ASSERT_EQ(result["cases"][0]["rows"].size(), 1U);
  const json& row = result["cases"][0]["rows"][0];
  EXPECT_EQ(row["gate"]["passed"], true);
  EXPECT_GE(row["times"]["wall"]["samples"], 10);
}

// Pages in random order, different lengths, and a cache of another type: judged as one piece.
TEST(Bench, TimesCachesInPages) {
  const Scratch scratch;
  const std::string file =
      scratch.write("cases.json", R"({"schema": "flashcore-cases", "version": 1, "cases": [
    {"name": "paged", "dtype": "bf16", "batch": 3, "heads_q": 4, "heads_kv": 2, "seqlen_q": 2,
     "seqlen_kv": 100, "head_dim": 32, "causal": true, "page_size": 16, "ragged": true},
    {"name": "narrow", "dtype": "f16", "batch": 2, "heads_q": 2, "seqlen_q": 1, "seqlen_kv": 50,
     "head_dim": 32, "page_size": 7, "kv_dtype": "f8e4m3"},
    {"name": "mixed", "dtype": "f8e4m3", "batch": 2, "heads_q": 2, "seqlen_q": 9, "seqlen_kv": 50,
     "head_dim": 32, "kv_dtype": "f8e5m2", "v_dtype": "f8e4m3"},
    {"name": "tree", "dtype": "f16", "batch": 2, "heads_q": 2, "seqlen_q": 40, "seqlen_kv": 50,
     "head_dim": 32, "page_size": 7, "tree": true, "ragged": true}]})");
  const json result = document({"bench", "--cases", file, "--device", "cpu"});
  ASSERT_EQ(result["cases"].size(), 4U);
  EXPECT_EQ(result["cases"][0]["features"], "pages of 16, ragged");
  EXPECT_EQ(result["cases"][2]["features"], "k and v f8e5m2, v f8e4m3");
  for (const json& one : result["cases"]) {
    ASSERT_FALSE(one["rows"].empty());
    EXPECT_EQ(one["judged"], "all rows");
    for (const json& row : one["rows"]) EXPECT_EQ(row["gate"]["passed"], true) << row;
  }
  expect_refused({"bench", "--suite", "five", "--quick"}, 2, "--quick: the suite is 'five'");
}

TEST(Bench, GivesNoTimeToWhatFailedIt) {
  const Outcome outcome = flashcore_command({"bench", "--shape", "1,2,64,128", "--scale", "4",
                                             "--kernel", "naive", "--device", "cpu", "--json"});
  EXPECT_EQ(outcome.exit_code, 1);
  const json row = json::parse(outcome.out)["cases"][0]["rows"][0];
  EXPECT_EQ(row["gate"]["passed"], false);
  EXPECT_TRUE(row["times"].empty());
}

}  // namespace
}  // namespace flashcore::tests
