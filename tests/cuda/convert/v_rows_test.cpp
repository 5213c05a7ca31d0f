// What of forward_converted:v_rows needs no GPU: what is refused, and the problem with V in rows that it becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/convert/v_rows/supports.hpp"
#include "tests/cuda/kernel_refusal.hpp"

namespace flashcore::cuda::convert::v_rows {
namespace {

using testing::HasSubstr;
using tests::resolved;

Problem dense(int64_t head_dim_v, int64_t seqlen_kv = 200) {
  Problem p;
  p.q = TensorDesc::contiguous(DType::f8e4m3, {2, 4, 100, 64});
  p.k = TensorDesc::contiguous(DType::f8e4m3, {2, 2, seqlen_kv, 64});
  p.v = TensorDesc::contiguous(DType::f8e4m3, {2, 2, head_dim_v, columns_of_keys(seqlen_kv)});
  p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, head_dim_v});
  p.v_transposed = true;
  return p;
}

TEST(ForwardFp8VRows, CountsBlocksOfALaunch) {
  EXPECT_EQ(tests::refusal(v_rows::supports(), dense(72)), "");
  Problem p = dense(64, 256);
  const int64_t rows = int64_t{1} << 30;
  p.q = TensorDesc::contiguous(DType::f8e4m3, {1, 512, 1, 64});
  p.o = TensorDesc::contiguous(DType::bf16, {1, 512, 1, 64});
  p.k = TensorDesc::strided(DType::f8e4m3, {1, 512, rows, 64}, {0, 0, 0, 1});
  p.v = TensorDesc::strided(DType::f8e4m3, {1, 512, 64, rows}, {0, 0, 0, 1});
  EXPECT_THAT(tests::refusal(v_rows::supports(), p),
              HasSubstr("v: has 512 heads of 1073741824 rows of 64, wanted at most "));
}

TEST(ForwardFp8VRows, PutsRowsOfWholeChunksIntoTheWorkspace) {
  const ForwardProblem p = resolved(dense(72));
  const ForwardProblem rows = in_rows(p);
  EXPECT_FALSE(rows.v_transposed);
  EXPECT_EQ(rows.v.row, 80);
  EXPECT_EQ(rows.v.head, 200 * 80);
  EXPECT_EQ(rows.v.batch, 2 * 200 * 80);
  EXPECT_EQ(rows_bytes(p), 2 * 2 * 200 * 80);
  EXPECT_EQ(rows_bytes(resolved(dense(40, 1))),
            256);  // 192, and the next part begins at a multiple of 256
  EXPECT_EQ(blocks_of(p).all, 2 * 2 * 2 * 2);
  EXPECT_EQ(rows.k_dtype, p.k_dtype);
}

TEST(ForwardFp8VRows, HasNothingToDoWithoutKeys) {
  const ForwardProblem p = resolved(dense(64, 0));
  EXPECT_EQ(rows_bytes(p), 0);
  EXPECT_EQ(blocks_of(p).all, 0);
}

}  // namespace
}  // namespace flashcore::cuda::convert::v_rows
