// The problems that cuDNN's graph supports, and its fp8 scalars. Neither test needs cuDNN.
#include <gtest/gtest.h>

#include <map>

#include "bench/cases/cases.hpp"
#include "bench/peers/cudnn_attention.hpp"

namespace flashcore::bench {
namespace {

Problem fp8_problem() {
  Case one = square_case("one", DType::f8e4m3, 2, 3, 128, 64, false);
  one.o_dtype = DType::f8e4m3;
  return to_problem(one);
}

TEST(CudnnAttention, TakesF16AndBf16AndE4m3) {
  EXPECT_TRUE(cudnn_takes(fp8_problem()).ok());
  for (const DType dtype : {DType::f16, DType::bf16}) {
    EXPECT_TRUE(cudnn_takes(to_problem(square_case("one", dtype, 2, 3, 128, 64, false))).ok());
  }
}

TEST(CudnnAttention, RefusesInOneSentence) {
  const auto refusal = [](auto&& change) {
    Problem problem = fp8_problem();
    change(problem);
    return cudnn_takes(problem).message();
  };
  EXPECT_EQ(refusal([](Problem& p) { p.q.dtype = DType::f8e5m2; }),
            "cudnn: q is f8e5m2, wanted f16, bf16 or f8e4m3 here");
  EXPECT_EQ(refusal([](Problem& p) { p.v.dtype = DType::f8e5m2; }),
            "cudnn: v is f8e5m2, wanted q's f8e4m3");
  EXPECT_EQ(refusal([](Problem& p) {
              p.k_scale = TensorDesc::contiguous(DType::f32, {2, 3, 1});
            }),
            "cudnn: k_scale is given, wanted fp8 tensors without scales");
  EXPECT_EQ(refusal([](Problem& p) {
              p.o_scale = TensorDesc::contiguous(DType::f32, {2, 3});
            }),
            "cudnn: o_scale is f32 [2, 3], wanted one number");
}

TEST(CudnnAttention, ScalesOfFp8UndoEachOther) {
  std::map<int64_t, float> numbers;
  for (const CudnnNumber& one : cudnn_fp8_numbers(0x1p-6f)) {
    EXPECT_TRUE(numbers.emplace(one.id, one.value).second) << "twice: " << one.id;
  }
  EXPECT_EQ(numbers.size(), 8U);
  EXPECT_EQ(numbers[cudnn_id::kScaleS] * numbers[cudnn_id::kDescaleS], 1);
  EXPECT_LE(numbers[cudnn_id::kScaleS], 448) << "e4m3 saturates P";
  EXPECT_EQ(numbers[cudnn_id::kScaleO], 0x1p6f);
  for (const int64_t id : {cudnn_id::kDescaleQ, cudnn_id::kDescaleK, cudnn_id::kDescaleV}) {
    EXPECT_EQ(numbers[id], 1) << id;
  }
}

}  // namespace
}  // namespace flashcore::bench
