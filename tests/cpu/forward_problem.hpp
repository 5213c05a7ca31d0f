// Dense problems for the tests of the forward pass on the CPU.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "flashcore/flashcore.hpp"

namespace flashcore::testing {

inline constexpr DType kInputTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f8e4m3,
                                        DType::f8e5m2};

inline TensorDesc f32(std::initializer_list<int64_t> shape) {
  return TensorDesc::contiguous(DType::f32, shape);
}

struct Shape {
  int64_t batch = 2, heads_q = 8, heads_kv = 8, seqlen_q = 128, seqlen_kv = 128, head_dim = 64;
};

// With an LSE; O is f32 where the inputs are fp8.
inline Problem problem_of(const Shape& s, DType dtype) {
  const bool fp8 = dtype == DType::f8e4m3 || dtype == DType::f8e5m2;
  Problem p;
  p.q = TensorDesc::contiguous(dtype, {s.batch, s.heads_q, s.seqlen_q, s.head_dim});
  p.k = p.v = TensorDesc::contiguous(dtype, {s.batch, s.heads_kv, s.seqlen_kv, s.head_dim});
  p.o = p.q;
  if (fp8) p.o.dtype = DType::f32;
  p.lse = f32({s.batch, s.heads_q, s.seqlen_q});
  return p;
}

}  // namespace flashcore::testing
