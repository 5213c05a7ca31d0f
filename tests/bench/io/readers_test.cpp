// The readers of tensor files: every malformed file gives one sentence, every valid one its elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>

#include "bench/io/npy.hpp"
#include "bench/io/safetensors.hpp"
#include "tests/bench/io/malformed_files.hpp"
#include "tests/cli/scratch.hpp"

namespace flashcore::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

io::MemorySource source_of(const std::string& bytes) {
  return {"file", std::as_bytes(std::span(bytes))};
}

// The elements of a tensor, read as T.
template <class T>
std::vector<T> elements(const io::ByteSource& source, const io::TensorInfo& info) {
  const Result<DType> dtype = io::loaded_dtype(source, info);
  EXPECT_TRUE(dtype.ok()) << dtype.status().message();
  std::vector<T> out(*io::element_count(info.shape));
  EXPECT_EQ(size_of(*dtype), sizeof(T));
  const Status status = io::read_elements(source, info, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

void expect_verdict(const FileCase& file, const Status& status) {
  if (file.error.empty()) {
    EXPECT_TRUE(status.ok()) << status.message();
    return;
  }
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr(file.error));
  EXPECT_THAT(status.message(), ::testing::StartsWith("file: "));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("\n")));
}

TEST(Safetensors, EveryKindOfFile) {
  for (const FileCase& file : safetensors_cases()) {
    SCOPED_TRACE(file.name);
    const Result<std::vector<io::TensorInfo>> tensors = io::list_safetensors(source_of(file.bytes));
    expect_verdict(file, tensors.status());
  }
}

TEST(Npy, EveryKindOfFile) {
  for (const FileCase& file : npy_cases()) {
    SCOPED_TRACE(file.name);
    expect_verdict(file, io::list_npy(source_of(file.bytes)).status());
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = safetensors_file(
      R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(io::list_safetensors(source_of(whole.substr(0, size))).ok()) << size;
  }
  EXPECT_TRUE(io::list_safetensors(source_of(whole)).ok());
}

TEST(Npy, EveryTruncationIsRefused) {
  const std::string whole =
      npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", std::string(8, 'x'));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(io::list_npy(source_of(whole.substr(0, size))).ok()) << size;
  }
  EXPECT_TRUE(io::list_npy(source_of(whole)).ok());
}

TEST(Safetensors, ReadsUnalignedElements) {
  // The length of the header makes the data begin at an odd byte.
  std::string header = R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  if (header.size() % 2 == 1) header += ' ';
  const float values[] = {1.5F, -2.0F};
  std::string data(9, '\1');
  std::memcpy(data.data() + 1, values, sizeof(values));
  const std::string bytes = safetensors_file(header, data);
  const io::MemorySource source = source_of(bytes);
  const Result<std::vector<io::TensorInfo>> tensors = io::list_safetensors(source);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 2U);
  EXPECT_EQ((*tensors)[1].offset % 2, 1U);
  EXPECT_THAT(elements<float>(source, (*tensors)[1]), ElementsAre(1.5F, -2.0F));
}

TEST(Safetensors, NarrowsLengthsAndRefusesWhatDoesNotFit) {
  const auto file = [](int64_t last) {
    std::string data(16, '\0');
    const int64_t values[] = {-7, last};
    std::memcpy(data.data(), values, sizeof(values));
    return safetensors_file(R"({"n":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})", data);
  };
  const std::string good = file(std::numeric_limits<int32_t>::max());
  const io::MemorySource source = source_of(good);
  const Result<std::vector<io::TensorInfo>> tensors = io::list_safetensors(source);
  ASSERT_TRUE(tensors.ok());
  EXPECT_THAT(elements<int32_t>(source, tensors->front()),
              ElementsAre(-7, std::numeric_limits<int32_t>::max()));

  const std::string bad = file(int64_t{1} << 31);
  const io::MemorySource bad_source = source_of(bad);
  std::array<std::byte, 8> out{};
  const Result<std::vector<io::TensorInfo>> listed = io::list_safetensors(bad_source);
  ASSERT_TRUE(listed.ok());
  const Status status = io::read_elements(bad_source, listed->front(), out);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'n' has 2147483648 as element 1"));
}

TEST(Safetensors, TypesThatAreNotReadAreRefusedWhenAskedFor) {
  const std::string bytes = safetensors_file(
      R"({"q":{"dtype":"U16","shape":[4],"data_offsets":[0,8]}})", std::string(8, 'x'));
  const io::MemorySource source = source_of(bytes);
  const Result<std::vector<io::TensorInfo>> tensors = io::list_safetensors(source);
  ASSERT_TRUE(tensors.ok());
  EXPECT_THAT(io::loaded_dtype(source, tensors->front()).status().message(),
              HasSubstr("tensor 'q' has dtype U16, wanted F32"));
}

TEST(Npy, NamelessBytesNeedAType) {
  const std::string bytes =
      npy_file("{'descr': '|V2', 'fortran_order': False, 'shape': (4,)}", std::string(8, 'x'));
  const io::MemorySource source = source_of(bytes);
  const Result<io::TensorInfo> info = io::list_npy(source);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_THAT(io::loaded_dtype(source, *info).status().message(), HasSubstr("wanted --dtype bf16"));
  EXPECT_FALSE(io::loaded_dtype(source, *info, DType::f32).ok());
  const Result<DType> dtype = io::loaded_dtype(source, *info, DType::bf16);
  ASSERT_TRUE(dtype.ok());
  EXPECT_EQ(*dtype, DType::bf16);
}

TEST(Writers, WhatIsWrittenIsRead) {
  const Scratch scratch;
  const std::array<float, 6> values = {1, 2, 3, 4, 5, 6};
  const std::array<uint16_t, 2> halves = {0x3c00, 0xc000};
  const std::vector<io::OutputTensor> tensors = {
      {"o", DType::f32, {2, 3}, std::as_bytes(std::span(values))},
      {"lse", DType::bf16, {2}, std::as_bytes(std::span(halves))},
      {"none", DType::f16, {0, 4}, {}}};
  const std::string archive = scratch.path("a.safetensors");
  const Status written = io::write_safetensors(archive, tensors);
  ASSERT_TRUE(written.ok()) << written.message();
  const Result<std::unique_ptr<io::ByteSource>> file = io::open_file(archive);
  ASSERT_TRUE(file.ok());
  const Result<std::vector<io::TensorInfo>> listed = io::list_safetensors(**file);
  ASSERT_TRUE(listed.ok()) << listed.status().message();
  ASSERT_EQ(listed->size(), 3U);
  EXPECT_EQ((*listed)[0].name, "o");
  EXPECT_THAT((*listed)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*listed)[0].offset % 8, 0U);
  EXPECT_THAT(elements<float>(**file, (*listed)[0]), ::testing::ElementsAreArray(values));
  EXPECT_THAT(elements<uint16_t>(**file, (*listed)[1]), ::testing::ElementsAreArray(halves));

  const std::string array = scratch.path("a.npy");
  ASSERT_TRUE(io::write_npy(array, tensors[0]).ok());
  const Result<std::unique_ptr<io::ByteSource>> npy = io::open_file(array);
  ASSERT_TRUE(npy.ok());
  const Result<io::TensorInfo> info = io::list_npy(**npy);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_EQ(info->offset % 64, 0U);
  EXPECT_THAT(info->shape, ElementsAre(2, 3));
  EXPECT_THAT(elements<float>(**npy, *info), ::testing::ElementsAreArray(values));
  EXPECT_THAT(io::write_npy(array, tensors[1]).message(), HasSubstr(".npy has no bf16"));
  EXPECT_THAT(scratch.names(), ElementsAre("a.npy", "a.safetensors"));
}

TEST(Writers, ReplaceAsAWholeOrNotAtAll) {
  const Scratch scratch;
  const std::string path = scratch.write("a.npy", "before");
  const std::array<float, 1> value = {1};
  const io::OutputTensor tensor{"o", DType::f32, {1}, std::as_bytes(std::span(value))};
  EXPECT_FALSE(io::write_npy(scratch.path("missing/a.npy"), tensor).ok());
  EXPECT_THAT(io::write_npy("/dev/null", tensor).message(), HasSubstr("is not a regular file"));
  EXPECT_EQ(scratch.read("a.npy"), "before");

  std::filesystem::create_symlink(path, scratch.path("link.npy"));
  ASSERT_TRUE(io::write_npy(scratch.path("link.npy"), tensor).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(scratch.path("link.npy")));
  EXPECT_NE(scratch.read("a.npy"), "before");
  EXPECT_THAT(scratch.names(), ElementsAre("a.npy", "link.npy"));
}

TEST(Files, OnlyRegularOnesAreRead) {
  const Scratch scratch;
  EXPECT_THAT(io::open_file(scratch.path("missing")).status().message(),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(io::open_file(scratch.path("")).status().message(),
              HasSubstr("is not a regular file"));
  EXPECT_THAT(io::open_file("/dev/zero").status().message(), HasSubstr("is not a regular file"));
}

TEST(Files, ShrinkingWhileReadIsAnError) {
  const Scratch scratch;
  const std::string path = scratch.write("a", std::string(100, 'x'));
  const Result<std::unique_ptr<io::ByteSource>> file = io::open_file(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path, 10);
  std::array<std::byte, 50> out{};
  EXPECT_THAT((*file)->read(0, out).message(), HasSubstr("ended at byte 10"));
  EXPECT_THAT((*file)->read(90, out).message(), HasSubstr("has 100 bytes"));
}

}  // namespace
}  // namespace flashcore::tests
