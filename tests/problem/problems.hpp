// Small valid problems that validation tests change.
#pragma once

#include "flashcore/flashcore.hpp"

namespace flashcore {

// B 2, Hq 4, Hkv 2, Sq 3, Skv 5, Dqk 8, Dv 6.
inline Problem dense_problem(DType dtype = DType::f32) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {2, 4, 3, 8});
  problem.k = TensorDesc::contiguous(dtype, {2, 2, 5, 8});
  problem.v = TensorDesc::contiguous(dtype, {2, 2, 5, 6});
  problem.o = TensorDesc::contiguous(dtype, {2, 4, 3, 6});
  problem.lse = TensorDesc::contiguous(DType::f32, {2, 4, 3});
  return problem;
}

// 2 entries in 7 rows of queries and 9 of keys, with the same heads.
inline Problem packed_problem(DType dtype = DType::f32) {
  Problem problem;
  problem.q = TensorDesc::contiguous(dtype, {7, 4, 8});
  problem.k = TensorDesc::contiguous(dtype, {9, 2, 8});
  problem.v = TensorDesc::contiguous(dtype, {9, 2, 6});
  problem.o = TensorDesc::contiguous(dtype, {7, 4, 6});
  problem.lse = TensorDesc::contiguous(DType::f32, {7, 4});
  problem.cu_seqlens_q = problem.cu_seqlens_kv = TensorDesc::contiguous(DType::i32, {3});
  return problem;
}

// Every optional tensor of a dense problem, with scales in blocks of 2 keys.
inline Problem full_problem() {
  Problem problem = dense_problem(DType::f8e4m3);
  problem.bias = TensorDesc::contiguous(DType::f32, {2, 4, 3, 5});
  problem.mask = TensorDesc::contiguous(DType::boolean, {2, 4, 3, 5});
  problem.alibi_slopes = TensorDesc::contiguous(DType::f32, {2, 4});
  problem.sinks = TensorDesc::contiguous(DType::f32, {4});
  problem.q_scale = TensorDesc::contiguous(DType::f32, {2, 4});
  problem.k_scale = TensorDesc::contiguous(DType::f32, {2, 2, 3});
  problem.v_scale = TensorDesc::contiguous(DType::f32, {2, 2, 3});
  problem.seqlens_q = TensorDesc::contiguous(DType::i32, {2});
  problem.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  problem.causal_offsets = TensorDesc::contiguous(DType::i32, {2});
  problem.o_scale = TensorDesc::contiguous(DType::f32, {2, 4});
  problem.amax_o = problem.amax_s = problem.max_logit = problem.o_scale;
  problem.alignment = Alignment::given;
  problem.kv_scale_block = 2;
  return problem;
}

}  // namespace flashcore
