// Problems, and what a kernel's `supports` answer. For refusals that are not of a set: tests/cuda/supported_rows.cpp has
// the others.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernel/supports.hpp"

namespace flashcore::tests {

// Two entries of four heads.
inline Problem dense_heads(DType dtype, int64_t head_dim_qk, int64_t head_dim_v,
                           int64_t rows = 100) {
  Problem p;
  p.q = p.k = TensorDesc::contiguous(dtype, {2, 4, rows, head_dim_qk});
  p.v = p.o = TensorDesc::contiguous(dtype, {2, 4, rows, head_dim_v});
  p.lse = TensorDesc::contiguous(DType::f32, {2, 4, rows});
  return p;
}

// Two entries with keys and values in 30 pages of so many rows.
inline Problem paged_heads(int64_t page_size, int64_t head_dim = 128) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {2, 4, 100, head_dim});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {30, 2, page_size, head_dim});
  p.page_table = TensorDesc::contiguous(DType::i32, {2, 10});
  return p;
}

struct AskedGradients {
  Problem problem;
  Gradients gradients;
};

// Gradients of two entries of four heads over two heads of keys.
inline AskedGradients dense_gradients(DType dtype, int64_t head_dim_qk, int64_t head_dim_v,
                                      int64_t rows = 100) {
  AskedGradients asked{.problem = dense_heads(dtype, head_dim_qk, head_dim_v, rows),
                       .gradients = {}};
  Problem& p = asked.problem;
  p.k = TensorDesc::contiguous(dtype, {2, 2, rows, head_dim_qk});
  p.v = TensorDesc::contiguous(dtype, {2, 2, rows, head_dim_v});
  asked.gradients.d_o = p.o;
  asked.gradients.dq = p.q;
  asked.gradients.dk = p.k;
  asked.gradients.dv = p.v;
  return asked;
}

inline ForwardProblem resolved(const Problem& problem) {
  const Result<ForwardProblem> p = resolve(problem);
  EXPECT_TRUE(p.ok()) << p.status().message();
  return p.ok() ? *p : ForwardProblem{};
}
inline BackwardProblem resolved(const AskedGradients& asked) {
  const Result<BackwardProblem> p = resolve(asked.problem, asked.gradients);
  EXPECT_TRUE(p.ok()) << p.status().message();
  return p.ok() ? *p : BackwardProblem{};
}

inline PlanContext on_gpu(int32_t compute_capability, int64_t multiprocessors = 132,
                          int64_t shared_memory = 227 * 1024) {
  PlanContext context;
  context.device.device = {DeviceKind::cuda, 0};
  context.device.compute_capability = compute_capability;
  context.device.multiprocessors = static_cast<int32_t>(multiprocessors);
  context.device.shared_memory_per_block = shared_memory;
  return context;
}

template <class AnyProblem>
std::string refusal(const SupportsOf<AnyProblem>& supports, const AnyProblem& problem,
                    const PlanContext& context = on_gpu(90)) {
  return refusal_on_gpu(supports, "80+ptx;89;90a", problem, context);
}
inline std::string refusal(const Supports& supports, const Problem& problem,
                           const PlanContext& context = on_gpu(90)) {
  return refusal(supports, resolved(problem), context);
}
inline std::string refusal(const BackwardSupports& supports, const AskedGradients& asked,
                           const PlanContext& context = on_gpu(90)) {
  return refusal(supports, resolved(asked), context);
}

}  // namespace flashcore::tests
