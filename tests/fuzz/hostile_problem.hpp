// Problems with consistent shapes and hostile sizes: most pass validation and reach the arithmetic
// of plans. Inputs are mostly broadcast, with strides of 0, because no other layout of such extents
// fits an address space.
#pragma once

#include <cstdint>
#include <iterator>

#include "flashcore/flashcore.hpp"
#include "problem/transposed.hpp"

namespace flashcore::tests {

// draw(): the next 32 random bits.
template <class Draw>
class HostileProblem {
 public:
  explicit HostileProblem(const Draw& draw) : draw_(draw) {}

  Problem make() {
    const int64_t batch = extent(), group = one_of(1, 1, 2, 3, 8), heads_kv = extent() / group;
    const int64_t heads_q = heads_kv * group, seqlen_q = extent(), seqlen_kv = extent();
    const int64_t head_dim = this->head_dim();
    const int64_t head_dim_v = flag() ? head_dim : this->head_dim();
    const auto dtype = static_cast<DType>(draw_() % 5);
    const auto out = flag() ? dtype : static_cast<DType>(draw_() % 3);
    Problem p;
    if (draw_() % 4 == 0) {
      p.q = rows(dtype, {seqlen_q, heads_q, head_dim});
      p.k = rows(dtype, {seqlen_kv, heads_kv, head_dim});
      p.v = rows(dtype, {seqlen_kv, heads_kv, head_dim_v});
      p.o = TensorDesc::contiguous(out, {seqlen_q, heads_q, head_dim_v});
      p.cu_seqlens_q = p.cu_seqlens_kv = vector(DType::i32, saturated(batch));
      if (flag()) p.max_seqlen_q = flag() ? seqlen_q : extent();
      if (flag()) p.max_seqlen_kv = flag() ? seqlen_kv : extent();
      if (flag()) p.lse = TensorDesc::contiguous(DType::f32, {seqlen_q, heads_q});
    } else {
      p.q = rows(dtype, {batch, heads_q, seqlen_q, head_dim});
      p.k = rows(dtype, {batch, heads_kv, seqlen_kv, head_dim});
      p.v = rows(dtype, {batch, heads_kv, seqlen_kv, head_dim_v});
      p.o = TensorDesc::contiguous(out, {batch, heads_q, seqlen_q, head_dim_v});
      if (flag()) p.lse = TensorDesc::contiguous(DType::f32, {batch, heads_q, seqlen_q});
      p.v_transposed = size_of(dtype) == 1 && draw_() % 4 == 0;
      if (p.v_transposed) {
        const int64_t columns = flag() ? columns_of_keys(seqlen_kv) : extent();
        p.v = rows(dtype, {batch, heads_kv, head_dim_v, columns});
      }
    }
    if (draw_() % 8 == 0) p.bias = TensorDesc::contiguous(DType::f32, {1, 1, 1, 1});
    if (draw_() % 8 == 0) p.alibi_slopes = vector(DType::f32, heads_q);
    if (draw_() % 8 == 0) p.seqlens_kv = vector(DType::i32, batch);
    if (dtype == DType::f8e4m3 && flag()) {
      p.q_scale = TensorDesc::contiguous(DType::f32, {1, 1});
      p.k_scale = p.v_scale = TensorDesc::contiguous(DType::f32, {1, 1, 1});
    }
    if (draw_() % 8 == 0) p.amax_o = TensorDesc::contiguous(DType::f32, {1, heads_q});
    if (draw_() % 8 == 0) p.amax_s = TensorDesc::contiguous(DType::f32, {batch, 1});
    if (size_of(out) == 1 && flag()) p.o_scale = TensorDesc::contiguous(DType::f32, {1, 1});
    p.causal = flag();
    if (draw_() % 4 == 0) p.window_left = extent();
    if (draw_() % 8 == 0) p.softcap = 30;
    if (draw_() % 8 == 0) p.dropout_p = 0.5F;
    p.alignment = static_cast<Alignment>(draw_() % 3);
    if (p.alignment == Alignment::given) p.causal_offset = int64_t{1} << draw_() % 33;
    return p;
  }

 private:
  bool flag() { return draw_() % 2 == 1; }
  int64_t one_of(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    const int64_t all[] = {a, b, c, d, e};
    return all[draw_() % std::size(all)];
  }
  static int64_t saturated(int64_t batch) { return batch < INT32_MAX ? batch + 1 : batch; }

  // Around powers of two up to the largest; half of them small.
  int64_t extent() {
    if (flag()) return draw_() % 20;
    const int64_t power = int64_t{1} << draw_() % 32;
    const int64_t near = power + static_cast<int64_t>(draw_() % 3) - 1;
    return near > INT32_MAX ? INT32_MAX : near;
  }

  int64_t head_dim() { return flag() ? one_of(64, 64, 128, 256, 40) : extent(); }

  // A stride that is valid for an input dimension.
  int64_t stride(int64_t dense) {
    switch (draw_() % 4) {
      case 0:
        return dense;
      case 1:
        return int64_t{1} << draw_() % 62;  // mostly refused, unless the extent is 1
      default:
        return 0;
    }
  }

  TensorDesc rows(DType dtype, std::initializer_list<int64_t> shape) {
    TensorDesc tensor = TensorDesc::contiguous(dtype, shape);
    for (size_t d = 0; d + 1 < shape.size(); ++d) tensor.stride[d] = stride(tensor.stride[d]);
    return tensor;
  }

  TensorDesc vector(DType dtype, int64_t count) {
    return TensorDesc::strided(dtype, {count}, {stride(1)});
  }

  const Draw& draw_;
};

template <class Draw>
Problem hostile_problem(const Draw& draw) {
  return HostileProblem<Draw>(draw).make();
}

// Gradients of a hostile problem, which gets an LSE: d_o mostly broadcast, outputs contiguous,
// since outputs cannot be broadcast.
template <class Draw>
Gradients hostile_gradients(const Draw& draw, Problem& problem) {
  const auto contiguous = [](DType dtype, const TensorDesc& like) {
    const auto& s = like.shape;
    TensorDesc out = TensorDesc::contiguous(
        dtype, {s[0], s[1], like.rank > 2 ? s[2] : 1, like.rank > 3 ? s[3] : 1});
    out.rank = like.rank;
    for (auto d = static_cast<size_t>(like.rank); d < 4; ++d) out.shape[d] = out.stride[d] = 0;
    return out;
  };
  const auto output = [&](const TensorDesc& of) {
    return contiguous(draw() % 4 == 0 ? DType::f32 : of.dtype, of);
  };
  TensorDesc rows = problem.o;
  --rows.rank;
  problem.lse = contiguous(DType::f32, rows);
  Gradients gradients;
  gradients.d_o = problem.o;
  if (draw() % 4 != 0) {
    gradients.d_o.stride = {};
    gradients.d_o.stride[static_cast<size_t>(problem.o.rank - 1)] = 1;
  }
  gradients.dq = output(problem.q);
  gradients.dk = output(problem.k);
  gradients.dv = output(problem.v);
  if (draw() % 2 == 0) gradients.d_lse = problem.lse;
  if (problem.bias && draw() % 2 == 0) gradients.d_bias = problem.bias;
  return gradients;
}

}  // namespace flashcore::tests
