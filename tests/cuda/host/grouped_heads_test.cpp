#include "cuda/host/grouped_heads.hpp"

#include <gtest/gtest.h>

namespace flashcore::cuda::host {
namespace {

Problem decode(int64_t heads_q, int64_t heads_kv) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::f16, {3, heads_q, 1, 64});
  p.k = p.v = TensorDesc::contiguous(DType::f16, {3, heads_kv, 100, 64});
  p.lse = TensorDesc::contiguous(DType::f32, {3, heads_q, 1});
  return p;
}

ForwardProblem resolved(const Problem& problem) {
  const Result<ForwardProblem> p = resolve(problem);
  EXPECT_TRUE(p.ok()) << p.status().message();
  return *p;
}

bool is_grouped(const Problem& problem) {
  const ForwardProblem p = resolved(problem);
  return with_grouped_heads(p).heads_q != p.heads_q;
}

TEST(GroupedHeads, EveryHeadIsAQueryOfItsKvHeadInTheSamePlace) {
  Problem problem = decode(12, 3);
  problem.causal = true;
  problem.bias = TensorDesc::contiguous(DType::f32, {3, 12, 1, 100});
  problem.mask = TensorDesc::contiguous(DType::boolean, {1, 1, 1, 100});
  const ForwardProblem p = resolved(problem), g = with_grouped_heads(p);
  ASSERT_EQ(g.heads_q, 3);
  ASSERT_EQ(g.seqlen_q, 4);
  EXPECT_TRUE(g.band.unlimited()) << "the only query of bottom_right sees every key";
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t h = 0; h < 12; ++h) {
      const int64_t head = p.kv_head(h), query = h % 4;
      EXPECT_EQ(g.kv_head(head), head);
      EXPECT_EQ(g.q.at(b, head, query), p.q.at(b, h, 0));
      EXPECT_EQ(g.o.at(b, head, query), p.o.at(b, h, 0));
      EXPECT_EQ(g.lse.at(b, head, query), p.lse.at(b, h, 0));
      EXPECT_EQ(g.bias.at(b, head, query, 7), p.bias.at(b, h, 0, 7));
      EXPECT_EQ(g.mask.at(b, head, query, 7), p.mask.at(b, h, 0, 7));
    }
  }
}

TEST(GroupedHeads, WhatQueriesOfAHeadCannotDifferInKeepsTheProblemAsItIs) {
  EXPECT_TRUE(is_grouped(decode(8, 2)));
  EXPECT_FALSE(is_grouped(decode(8, 8))) << "no group";
  Problem p = decode(8, 2);
  p.causal = true;
  EXPECT_TRUE(is_grouped(p));
  p.alignment = Alignment::top_left;
  EXPECT_FALSE(is_grouped(p)) << "sees one key";
  p = decode(8, 2);
  p.window_left = 5;
  EXPECT_FALSE(is_grouped(p));
  p = decode(8, 2);
  p.sinks = TensorDesc::contiguous(DType::f32, {8});
  EXPECT_FALSE(is_grouped(p));
  p = decode(8, 2);
  p.alibi_slopes = TensorDesc::contiguous(DType::f32, {8});
  EXPECT_FALSE(is_grouped(p));
  p = decode(8, 2);
  p.dropout_p = 0.5F;
  EXPECT_FALSE(is_grouped(p));
  p = decode(8, 2);
  p.seqlens_q = TensorDesc::contiguous(DType::i32, {3});
  EXPECT_FALSE(is_grouped(p)) << "an entry may have no query";
  p = decode(8, 2);
  p.q = p.o = TensorDesc::contiguous(DType::f16, {3, 8, 2, 64});
  p.lse.reset();
  EXPECT_FALSE(is_grouped(p)) << "two queries";
}

}  // namespace
}  // namespace flashcore::cuda::host
