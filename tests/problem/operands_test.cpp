// The tables of operands against the public header, which is written by hand, and the sentences that follow from a line.
#include "problem/operands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace flashcore {
namespace {

using ::testing::StartsWith;

std::string header() {
  std::ostringstream text;
  text << std::ifstream(FLASHCORE_ROOT "/include/flashcore/flashcore.h").rdbuf();
  return text.str();
}

// What stands between the braces of a struct.
std::string body_of(const std::string& name) {
  const std::string text = header();
  const size_t begin = text.find("typedef struct " + name + " {"),
               end = text.find("} " + name + ";");
  EXPECT_LT(begin, end) << name;
  return text.substr(begin, end - begin);
}

struct Member {
  std::string type, name, comment;  // the comment on its line, and where that goes on
};

std::vector<Member> members_of(const std::string& name, const std::string& type) {
  const std::string body = body_of(name);
  const std::regex member("\n  (" + type + ") (\\w+);(?: */\\*([^/]*)\\*/)?");
  std::vector<Member> found;
  for (std::sregex_iterator one(body.begin(), body.end(), member), end; one != end; ++one) {
    found.push_back({(*one)[1], (*one)[2], (*one)[3]});
  }
  return found;
}

// A shape as the header writes it, with "|1".
std::string written(const Shape& shape) {
  std::string text;
  for (size_t d = 0; d < static_cast<size_t>(shape.rank); ++d) {
    text += text.empty() ? "[" : ", ";
    text += kExtentNames[shape.extents[d]];
    if (shape.broadcast[d]) text += "|1";
  }
  return text + "]";
}

template <class What>
void expect_as_in_header(const std::string& problem, const std::string& arguments) {
  const auto& lines = kOperands<What>;
  const std::vector<Member> tensors = members_of(problem, "flashcore_tensor");
  const std::vector<Member> pointers =
      members_of(arguments, "(?:const )?(?:void|float|int32_t|int64_t)\\*");
  ASSERT_EQ(tensors.size(), lines.size()) << problem;
  ASSERT_EQ(pointers.size(), lines.size()) << arguments;
  size_t before = 0;
  for (size_t n = 0; n < lines.size(); ++n) {
    const Line& line = lines[n];
    EXPECT_EQ(tensors[n].name, line.name) << problem;
    EXPECT_GT(line.c_tensor, before) << line.name;
    before = line.c_tensor;
    const std::regex shape("\\[[^\\]]*\\]");
    const std::string& comment = tensors[n].comment;
    for (std::sregex_iterator one(comment.begin(), comment.end(), shape), end; one != end; ++one) {
      const auto is_it = [&](const Shape& of) { return written(of) == one->str(); };
      EXPECT_TRUE(std::any_of(line.shapes.all.begin(), line.shapes.all.end(), is_it))
          << problem << ' ' << line.name << ' ' << one->str();
    }
    const auto pointer = std::find_if(pointers.begin(), pointers.end(),
                                      [&](const Member& one) { return one.name == line.name; });
    ASSERT_NE(pointer, pointers.end()) << line.name;
    EXPECT_EQ(!pointer->type.starts_with("const "), line.is_output) << line.name;
    EXPECT_EQ(pointer->type.ends_with("float*"), line.types == DTypes{DType::f32}) << line.name;
  }
}

TEST(Operands, AreThoseOfThePublicHeader) {
  expect_as_in_header<Problem>("flashcore_problem", "flashcore_arguments");
  expect_as_in_header<Gradients>("flashcore_gradients", "flashcore_backward_arguments");
  expect_as_in_header<Merge>("flashcore_merge_problem", "flashcore_merge_arguments");
  expect_as_in_header<Append>("flashcore_append_problem", "flashcore_append_arguments");
  expect_as_in_header<Quantize>("flashcore_quantize_problem", "flashcore_quantize_arguments");
}

TEST(Operands, AShapeIsItsText) {
  constexpr Shape kShape(kPacked, "[B|1, rotary_dim / 2, 2]");
  EXPECT_EQ(kShape.text(), "[B, rotary_dim / 2, 2]");
  EXPECT_EQ(written(kShape), "[B|1, rotary_dim / 2, 2]");
  EXPECT_EQ(kShape.rank, 3);
  EXPECT_EQ(kShape.forms, kPacked);
}

TEST(Operands, TheFirstTensorThatHasAnExtentGivesIt) {
  const Line first{.name = "first", .types = {DType::f32}, .shapes = {"[B + 1]"}};
  const Line second{.name = "second",
                    .is_output = true,
                    .types = {DType::f32, DType::f16},
                    .shapes = {{kPacked, "[total, D]"}, "[B, H, D]", "[B|1, D]"}};
  Extents extents;
  const auto check = [&](const Line& line, std::initializer_list<int64_t> shape, int forms = 0) {
    return check_shape(line, TensorDesc::contiguous(DType::f32, shape), forms, extents).message();
  };
  EXPECT_EQ(extents["B"], 0);
  EXPECT_EQ(check(first, {0}), "first: shape is [0], wanted [B + 1]");
  EXPECT_EQ(check(first, {5}), "");
  EXPECT_EQ(extents["B"], 4);
  EXPECT_EQ(check(second, {4, 2, 8}), "");
  EXPECT_EQ(extents["H"], 2);
  EXPECT_EQ(check(second, {4, 3, 8}), "second: shape is [4, 3, 8], wanted [B, H, D] = [4, 2, 8]");
  EXPECT_EQ(check(second, {1, 8}), "");
  EXPECT_EQ(check(second, {3, 8}), "second: shape is [3, 8], wanted [B, D] = [4, 8]");
  EXPECT_EQ(check(second, {8}), "second: rank is 1, wanted 3 for [B, H, D] (or rank 2 for [B, D])");
  EXPECT_EQ(check(second, {7, 8}, kPacked), "");
  EXPECT_EQ(extents["total"], 7);
  TensorDesc columns = TensorDesc::strided(DType::f32, {4, 2, 8}, {16, 8, 2});
  EXPECT_EQ(check_shape(second, columns, 0, extents).message(),
            "second: stride of the last dimension is 2, wanted 1");
  columns.stride = {16, 4, 1};
  EXPECT_THAT(check_shape(second, columns, 0, extents).message(), StartsWith("second: strides"));
  EXPECT_EQ(check_type(second, TensorDesc::contiguous(DType::f64, {1})).message(),
            "second: dtype is f64, wanted f32 or f16");
  EXPECT_EQ(check_type(second, TensorDesc::contiguous(static_cast<DType>(9), {1})).message(),
            "second: dtype is number 9, wanted 0 to 8");
}

}  // namespace
}  // namespace flashcore
