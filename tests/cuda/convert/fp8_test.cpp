// What of forward_converted:fp8 needs no GPU: what is refused, and the problem of 16 bits that it becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/convert/fp8/layout.hpp"
#include "cuda/convert/fp8/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::convert::fp8 {
namespace {

using testing::HasSubstr;
using tests::resolved;

Problem dense(int64_t head_dim, DType dtype = DType::f8e4m3) {
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {2, 4, 100, head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {2, 2, 200, head_dim});
  p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, head_dim});
  return p;
}

TEST(ForwardFp8Converted, CountsRowsOfAllHeads) {
  Problem p = dense(64);
  p.k = p.v = TensorDesc::strided(DType::f8e4m3, {2, 2, int64_t{1} << 30, 64}, {0, 0, 64, 1});
  EXPECT_THAT(tests::refusal(fp8::supports(), p), HasSubstr("k: has "));
}

TEST(ForwardFp8Converted, TakesEveryTensorByItsOwnType) {
  for (const DType q : {DType::f8e4m3, DType::f8e5m2}) {
    for (const DType k : {DType::f8e4m3, DType::f8e5m2}) {
      for (const DType v : {DType::f8e4m3, DType::f8e5m2}) {
        Problem p = dense(64, q);
        p.k.dtype = k;
        p.v.dtype = v;
        EXPECT_EQ(tests::refusal(fp8::supports(), p), "");
        const ForwardProblem asked = resolved(p);
        const ForwardProblem half = as_16_bit(asked, layout_of(asked));
        EXPECT_EQ(half.k_dtype, DType::bf16);
        EXPECT_EQ(half.v_dtype, DType::bf16);
        EXPECT_FALSE(half.mixes_fp8());
      }
    }
  }
}

// Rows are whole chunks, and lie in the order of the caller's.
TEST(ForwardFp8Converted, PlacesTensorsBehindEachOther) {
  Problem p = dense(72);
  p.k = TensorDesc::strided(DType::f8e4m3, {2, 2, 200, 72}, {200 * 2 * 72, 72, 2 * 72, 1});
  p.v = TensorDesc::contiguous(DType::f8e4m3, {2, 2, 200, 33});
  p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, 33});
  const ForwardProblem asked = resolved(p);
  const Layout layout = layout_of(asked);
  EXPECT_EQ(layout.q.bytes, 2 * 4 * 100 * 72 * 2);
  EXPECT_EQ(layout.v.pitch, 40);
  EXPECT_FALSE(layout.converts_o);
  EXPECT_FALSE(layout.q.heads_inner);
  EXPECT_TRUE(layout.k.heads_inner);
  int64_t end = 0;
  for (const Placed* one : {&layout.q, &layout.k, &layout.v}) {
    EXPECT_EQ(one->offset % 256, 0);
    EXPECT_GE(one->offset, end);
    end = one->offset + one->bytes;
  }
  EXPECT_GE(layout.rest, end);
  const ForwardProblem half = as_16_bit(asked, layout);
  EXPECT_EQ(half.dtype, DType::bf16);
  EXPECT_EQ(half.k.row, 2 * 72);
  EXPECT_EQ(half.k.head, 72);
  EXPECT_EQ(half.q.head, 100 * 72);
  EXPECT_EQ(half.o.row, asked.o.row);
}

// An LSE shows what bf16 rounds; O then comes in f16, and its powers of two are brought in.
TEST(ForwardFp8Converted, AnLseWantsMoreBits) {
  Problem p = dense(64);
  p.lse = TensorDesc::contiguous(DType::f32, {2, 4, 100});
  p.v_scale = TensorDesc::contiguous(DType::f32, {2, 2, 1});
  Layout layout = layout_of(resolved(p));
  EXPECT_EQ(layout.dtype, DType::f16);
  EXPECT_TRUE(layout.converts_o);
  EXPECT_FALSE(layout.keeps_powers[1]);
  p.o.dtype = DType::f16;  // which has no room for larger values anyway
  layout = layout_of(resolved(p));
  EXPECT_TRUE(layout.keeps_powers[1]);
  EXPECT_FALSE(layout.converts_o);
  p.o.dtype = DType::bf16;
  p.kv_scale_block = 50;
  p.v_scale = TensorDesc::contiguous(DType::f32, {2, 2, 4});
  layout = layout_of(resolved(p));
  EXPECT_TRUE(layout.keeps_powers[1]);
  EXPECT_FALSE(layout.keeps_powers[0]);
  EXPECT_TRUE(layout.converts_o);
  p.o.dtype = DType::f16;
  EXPECT_FALSE(layout_of(resolved(p)).converts_o);
}

TEST(ForwardFp8Converted, OIsConvertedAfterwardsWhereItIsAnotherType) {
  for (const DType dtype : {DType::f32, DType::f8e4m3, DType::f8e5m2}) {
    Problem p = dense(64);
    p.o.dtype = dtype;
    EXPECT_TRUE(layout_of(resolved(p)).converts_o);
  }
  Problem p = dense(64);
  p.amax_o = TensorDesc::contiguous(DType::f32, {2, 4});
  const Layout layout = layout_of(resolved(p));
  EXPECT_TRUE(layout.converts_o);
  EXPECT_GE(layout.rest, layout.o.offset + layout.o.bytes);
}

}  // namespace
}  // namespace flashcore::cuda::convert::fp8
