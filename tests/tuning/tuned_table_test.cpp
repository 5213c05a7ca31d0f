// Tables of measurements: reading what was written, keys, merging, and hostile texts.
#include "tuning/tuned_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <string>

#include "plan/device.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::tuning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TunedEntry entry(const std::string& kernel, double us, const std::string& problem) {
  return {.kernel = kernel,
          .config = "rows=96",
          .is_default = false,
          .fingerprint = "source 0123456789abcdef",
          .compiler = "GNU 12.2.0",
          .us = us,
          .default_us = 100,
          .noise = 0.005,
          .default_kernel = "cpu_simd",
          .measured = "2026-11-24",
          .problems = {problem}};
}

TunedTable table() {
  return {.device = {.name = "Test CPU", .compute_capability = 0, .multiprocessors = 16},
          .entries = {{"forward f32 d64 full q1024 kv1024 bh8", entry("cpu_simd", 80, "one")},
                      {"decode bf16 d128 causal q1 kv8192 bh32", entry("other", 90.125, "two")}}};
}

TEST(TunedTable, SaysTheSameWhenItIsReadAgain) {
  const Result<TunedTable> read = parse_table(table_text(table()));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->device, table().device);
  EXPECT_EQ(read->entries, table().entries);
  EXPECT_EQ(table_text(*read), table_text(table()));
}

TEST(TunedTable, FilesAreNamedByTheDevice) {
  EXPECT_EQ(file_name({.name = "NVIDIA H200", .compute_capability = 90, .multiprocessors = 132}),
            "nvidia_h200_sm90_132.json");
  EXPECT_EQ(file_name({.name = "../../etc/passwd (R) 7B13", .multiprocessors = 2}),
            "etc_passwd_r_7b13_cpu_2.json");
}

TEST(TunedTable, RefusesWhatIsNoTable) {
  const auto said = [](const std::string& text) {
    const Result<TunedTable> read = parse_table(text);
    return read.ok() ? "accepted" : read.status().message();
  };
  const std::string good = table_text(table());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_THAT(said(""), HasSubstr("is not JSON"));
  EXPECT_THAT(said(good.substr(0, good.size() / 2)), HasSubstr("is not JSON"));
  EXPECT_THAT(said("[1]"), HasSubstr("is not an object"));
  EXPECT_THAT(said("{}"), HasSubstr("has no schema"));
  EXPECT_THAT(said(with("\"version\": 1", "\"version\": 2")), HasSubstr("of version 2, wanted"));
  EXPECT_THAT(said(with("flashcore-tuning", "flashcore-cases")), HasSubstr("flashcore-cases"));
  EXPECT_THAT(said(with("\"us\":90.125", "\"us\":-1")),
              HasSubstr("us is -1, wanted a number from 0"));
  EXPECT_THAT(said(with("\"us\":90.125", "\"us\":1e300")), HasSubstr("us is 1e+300, wanted"));
  EXPECT_THAT(said(with("\"us\":90.125", "\"us\":\"90\"")), HasSubstr("us is \"90\", wanted"));
  EXPECT_THAT(said(with("\"us\":90.125", "\"us\":90.125,\"nois\":0")),
              HasSubstr("has 'nois', wanted a key that is known; the nearest is 'noise'"));
  EXPECT_THAT(
      said(with("\"version\": 1", "\"version\": 1, \"devices\": []")),
      HasSubstr("table: has 'devices', wanted a key that is known; the nearest is 'device'"));
  EXPECT_THAT(said(with("\"kernel\":\"other\"", "\"kernel\":\"\"")), HasSubstr("kernel is empty"));
  EXPECT_THAT(said(with("\"two\"", "[\"two\"]")),
              HasSubstr("problems has [\"two\"], wanted texts"));
  EXPECT_THAT(said(with("Test CPU", "Test\\u0007CPU")),
              HasSubstr("name is \"Test\\u0007CPU\", wanted at most"));
  EXPECT_THAT(said(with("Test CPU", std::string(kMostText + 1, 'x'))), HasSubstr("at most"));
  EXPECT_THAT(
      said(with("decode bf16 d128 causal q1 kv8192 bh32", "forward f32 d64 full q1024 kv1024 bh8")),
      HasSubstr("key appears twice"));
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  EXPECT_THAT(said(deep), HasSubstr("levels"));
  EXPECT_THAT(said(with("\"problems\":[\"two\"]", "\"problems\":[{\"a\":{\"b\":{\"c\":1}}}]")),
              HasSubstr("levels"));
  EXPECT_THAT(said(std::string(kMostTableBytes + 1, ' ')), HasSubstr("bytes, wanted at most"));
}

// Bytes that are changed, lost or duplicated: a status with a message, or a table within its limits.
TEST(TunedTable, AnyBytesAreATableOrASentence) {
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  const std::string good = table_text(table());
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text[at] = "{}[]\",:0-e"[random() % 10];
          break;
        case 2:
          text.erase(at, random() % 20);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
      if (text.empty()) text = " ";
    }
    const Result<TunedTable> read = parse_table(text);
    if (!read.ok()) {
      ASSERT_FALSE(read.status().message().empty());
      continue;
    }
    ++accepted;
    for (const auto& [key, one] : read->entries) {
      ASSERT_LE(key.size(), kMostText);
      ASSERT_GE(one.us, 0);
      ASSERT_LE(one.problems.size(), kMostProblems);
    }
    ASSERT_TRUE(parse_table(table_text(*read)).ok());
  }
  EXPECT_GT(accepted, 100);
}

TEST(TunedTable, ReadsRegularFilesOnly) {
  const tests::Scratch scratch;
  const Result<ReadTable> missing = read_table(scratch.path("none.json"));
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(missing->is_there);
  EXPECT_THAT(read_table(scratch.path("")).status().message(), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(scratch.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_table(scratch.path("pipe")).status().message(), HasSubstr("not a regular file"));
  const Result<ReadTable> good = read_table(scratch.write("good.json", table_text(table())));
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->table.entries.size(), 2U);
}

TEST(TunedTable, TheLibraryHasThatOfTheH200) {
  const TunedDevice h200{.name = "NVIDIA H200", .compute_capability = 90, .multiprocessors = 132};
  const TunedTable shipped = shipped_table(h200);
  EXPECT_EQ(shipped.device, h200);
  EXPECT_GT(shipped.entries.size(), 100U);
  for (const auto& [key, one] : shipped.entries) EXPECT_THAT(key, HasSubstr(" d")) << one.kernel;
  EXPECT_TRUE(shipped_table({.name = "Other"}).entries.empty());
}

TEST(TunedTable, MergingKeepsWhatProblemsOfOneKeyAgreeOn) {
  TunedTable all = table();
  const std::string key = "decode bf16 d128 causal q1 kv8192 bh32";
  TunedEntry standing = entry("standing", 100, "three");
  standing.is_default = true;

  merge(all, key, entry("other", 95, "three"), standing, true);
  EXPECT_EQ(all.entries.at(key).kernel, "other");
  EXPECT_EQ(all.entries.at(key).us, 95) << "that which gains least";
  EXPECT_THAT(all.entries.at(key).problems, ElementsAre("two", "three"));

  merge(all, key, entry("third", 50, "four"), standing, true);
  EXPECT_EQ(all.entries.at(key).kernel, "standing");
  EXPECT_TRUE(all.entries.at(key).is_default);
  EXPECT_THAT(all.entries.at(key).problems, ElementsAre("two", "three", "four"));

  merge(all, key, entry("third", 50, "four"), standing, false);
  EXPECT_EQ(all.entries.at(key).kernel, "third") << "what was there is of other code";
  EXPECT_THAT(all.entries.at(key).problems, ElementsAre("four"));

  merge(all, key, entry("fourth", 40, "four"), standing, true);
  EXPECT_EQ(all.entries.at(key).kernel, "fourth") << "the same problem, measured again";

  merge(all, "new", entry("fifth\n", 1e300 * 10, "\x01"), standing, false);
  EXPECT_TRUE(parse_table(table_text(all)).ok()) << "what is written can be read";
}

TEST(TunedKey, LengthsAreInStepsOfHalfAPowerOfTwo) {
  EXPECT_EQ(bucket_of(0), 0);
  EXPECT_EQ(bucket_of(1), 1);
  for (const int64_t power : {2, 64, 1024, 131072}) {
    EXPECT_EQ(bucket_of(power), power);
    EXPECT_EQ(bucket_of(power * 11 / 10), power);
    EXPECT_EQ(bucket_of(power - power / 10), power);
  }
  EXPECT_EQ(bucket_of(1500), 1448);
  EXPECT_NE(bucket_of(1500), bucket_of(2048));
}

Problem dense(int64_t seqlen_q, int64_t seqlen_kv) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {2, 8, seqlen_q, 128});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {2, 2, seqlen_kv, 128});
  return p;
}

std::string key(const Problem& problem, bool batch_invariant = false) {
  PlanContext context;
  context.device.device.kind = DeviceKind::cuda;
  context.batch_invariant = batch_invariant;
  const Result<ForwardProblem> resolved = resolve(problem);
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? tuned_key(*resolved, context) : "";
}

TEST(TunedKey, IsOfWhatMakesAProblemFastOrSlow) {
  EXPECT_EQ(key(dense(1024, 1024)), "forward bf16 d128 full group4 q1024 kv1024 bh16");
  EXPECT_EQ(key(dense(1, 8000)), "decode bf16 d128 full group4 q1 kv8192 bh16");
  Problem causal = dense(1024, 1024);
  causal.causal = true;
  EXPECT_EQ(key(causal), "forward bf16 d128 causal group4 q1024 kv1024 bh16");
  Problem top_left = causal;
  top_left.alignment = Alignment::top_left;
  EXPECT_EQ(key(top_left), key(causal)) << "with as many queries as keys";
  Problem mixed = dense(1024, 1024);
  mixed.q.dtype = mixed.k.dtype = DType::f8e4m3, mixed.v.dtype = DType::f8e5m2;
  EXPECT_EQ(key(mixed), "forward f8e4m3/f8e4m3/f8e5m2>bf16 d128 full group4 q1024 kv1024 bh16");
  mixed.k.dtype = DType::f8e5m2;
  EXPECT_EQ(key(mixed), "forward f8e4m3/f8e5m2>bf16 d128 full group4 q1024 kv1024 bh16");
  Problem chunk = dense(1024, 4096);
  chunk.causal = true;
  chunk.softcap = 30;
  chunk.sinks = TensorDesc::contiguous(DType::f32, {8});
  EXPECT_EQ(key(chunk),
            "forward bf16 d128 causal@bottom_right group4 sinks softcap q1024 kv4096 bh16");
  Problem window = causal;
  window.window_left = 512;
  EXPECT_EQ(key(window), "forward bf16 d128 window512,0 group4 q1024 kv1024 bh16");
  EXPECT_EQ(key(causal, true), "") << "a choice that may not go by the batch";
  EXPECT_EQ(key(dense(0, 64)), "");
}

}  // namespace
}  // namespace flashcore::tuning
