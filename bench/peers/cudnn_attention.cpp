#include "bench/peers/cudnn_attention.hpp"

#include <utility>

#include "bench/cases/problem_text.hpp"
#include "bench/peers/cudnn_graph.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Dims = CudnnGraph::Dims;
using Tensor = CudnnGraph::Tensor;

// A power of two, so that descale_s undoes it exactly: P is at most 1, and e4m3 reaches 448.
constexpr float kScaleOfP = 256;

Dims dims_of(const TensorDesc& desc) {
  return {desc.shape[0], desc.shape[1], desc.shape[2], desc.shape[3]};
}

Dims strides_of(const TensorDesc& desc) {
  return {desc.stride[0], desc.stride[1], desc.stride[2], desc.stride[3]};
}

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f8e4m3:
      return CUDNN_DATA_FP8_E4M3;
    case DType::f8e5m2:
      return CUDNN_DATA_FP8_E5M2;
    default:
      return CUDNN_DATA_HALF;
  }
}

// One scalar on the device.
Tensor number(CudnnGraph& graph, int64_t id) {
  return graph.memory(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1});
}

Tensor times(CudnnGraph& graph, Tensor x, Tensor factor, const Dims& dims,
             cudnnDataType_t type = CUDNN_DATA_FLOAT) {
  return graph.pointwise(CUDNN_POINTWISE_MUL, x, factor, dims, type);
}

Tensor masked(CudnnGraph& graph, const Problem& problem, Tensor scores, const Dims& pairs) {
  Tensor row = graph.index(scores, 2, pairs);
  const Tensor column = graph.index(scores, 3, pairs);
  if (is_shifted(problem)) {  // the engines recognise the bottom-right diagonal by these two steps
    const Tensor seqlen_kv = graph.scalar(cudnn_id::kSeqlenKv, CUDNN_DATA_INT32);
    const Tensor seqlen_q = graph.scalar(cudnn_id::kSeqlenQ, CUDNN_DATA_INT32);
    row = graph.pointwise(CUDNN_POINTWISE_ADD, row, seqlen_kv, pairs, CUDNN_DATA_INT32);
    row = graph.pointwise(CUDNN_POINTWISE_SUB, row, seqlen_q, pairs, CUDNN_DATA_INT32);
  }
  const Tensor seen =
      graph.pointwise(CUDNN_POINTWISE_CMP_GE, row, column, pairs, CUDNN_DATA_BOOLEAN);
  return graph.select(seen, scores, graph.scalar(cudnn_id::kHidden, CUDNN_DATA_FLOAT), pairs);
}

Tensor softmax(CudnnGraph& graph, Tensor scores, const Dims& pairs, cudnnDataType_t type) {
  const Dims rows = {pairs[0], pairs[1], pairs[2], 1};
  const Tensor largest = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, rows);
  const Tensor below = graph.pointwise(CUDNN_POINTWISE_SUB, scores, largest, pairs);
  const Tensor weights = graph.pointwise(CUDNN_POINTWISE_EXP, below, nullptr, pairs);
  const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, rows);
  // The engines recognise the softmax by its logarithm, too, even if it is not read.
  const Tensor log = graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, rows);
  (void)graph.pointwise(CUDNN_POINTWISE_ADD, largest, log, rows);
  return graph.pointwise(CUDNN_POINTWISE_DIV, weights, sum, pairs, type);
}

// The engines recognise fp8 by these steps; only amax_s may be left out.
void add_fp8_output(CudnnGraph& graph, Tensor p, Tensor v, Tensor o, const Dims& pairs,
                    const Dims& outputs) {
  graph.reduce_into(CUDNN_REDUCE_TENSOR_AMAX, p, number(graph, cudnn_id::kAmaxS));
  p = times(graph, p, number(graph, cudnn_id::kScaleS), pairs, CUDNN_DATA_FP8_E4M3);
  Tensor out = graph.product(p, v, outputs);
  for (const int64_t id : {cudnn_id::kDescaleS, cudnn_id::kDescaleV}) {
    out = times(graph, out, number(graph, id), outputs);
  }
  graph.pointwise_into(CUDNN_POINTWISE_MUL, out, number(graph, cudnn_id::kScaleO), o);
  graph.reduce_into(CUDNN_REDUCE_TENSOR_AMAX, out, number(graph, cudnn_id::kAmaxO));
}

}  // namespace

bool is_masked(const Problem& problem) { return problem.causal && problem.q.shape[2] > 1; }

bool is_shifted(const Problem& problem) {
  return is_masked(problem) && problem.q.shape[2] != problem.k.shape[2];
}

Status cudnn_takes(const Problem& problem) {
  const DType dtype = problem.q.dtype;
  if (dtype == DType::f16 || dtype == DType::bf16) return {};
  if (dtype != DType::f8e4m3) {
    return unsupported("cudnn: q is {}, wanted f16, bf16 or f8e4m3 here", to_string(dtype));
  }
  for (const auto& [name, desc] : {std::pair{"k", problem.k}, {"v", problem.v}}) {
    if (desc.dtype == dtype) continue;
    return unsupported("cudnn: {} is {}, wanted q's f8e4m3", name, to_string(desc.dtype));
  }
  for (const auto& [name, desc] : {std::pair{"q_scale", problem.q_scale},
                                   {"k_scale", problem.k_scale},
                                   {"v_scale", problem.v_scale}}) {
    if (desc) return unsupported("cudnn: {} is given, wanted fp8 tensors without scales", name);
  }
  if (problem.o_scale && (problem.o_scale->shape[0] != 1 || problem.o_scale->shape[1] != 1)) {
    return unsupported("cudnn: o_scale is {}, wanted one number", tensor_text(*problem.o_scale));
  }
  return {};
}

void add_cudnn_attention(CudnnGraph& graph, const Problem& problem) {
  const cudnnDataType_t type = type_of(problem.q.dtype);
  const bool fp8 = type == CUDNN_DATA_FP8_E4M3;
  Dims keys = dims_of(problem.k), key_strides = strides_of(problem.k);
  std::swap(keys[2], keys[3]);  // K^T, in the same memory
  std::swap(key_strides[2], key_strides[3]);
  const Tensor q = graph.memory(cudnn_id::kQ, type, dims_of(problem.q), strides_of(problem.q));
  const Tensor k = graph.memory(cudnn_id::kK, type, keys, key_strides);
  const Tensor v = graph.memory(cudnn_id::kV, type, dims_of(problem.v), strides_of(problem.v));
  const Tensor o = graph.memory(cudnn_id::kO, fp8 ? type_of(problem.o.dtype) : type,
                                dims_of(problem.o), strides_of(problem.o));
  const Dims pairs = {problem.q.shape[0], problem.q.shape[1], problem.q.shape[2],
                      problem.k.shape[2]};
  Tensor scores = graph.product(q, k, pairs);
  scores = times(graph, scores, graph.scalar(cudnn_id::kScale, CUDNN_DATA_FLOAT), pairs);
  if (fp8) {
    for (const int64_t id : {cudnn_id::kDescaleQ, cudnn_id::kDescaleK}) {
      scores = times(graph, scores, number(graph, id), pairs);
    }
  }
  if (is_masked(problem)) scores = masked(graph, problem, scores, pairs);
  const Tensor p = softmax(graph, scores, pairs, fp8 ? CUDNN_DATA_FLOAT : type);
  if (fp8) {
    add_fp8_output(graph, p, v, o, pairs, dims_of(problem.o));
  } else {
    graph.product_into(p, v, o);
  }
}

std::vector<CudnnNumber> cudnn_fp8_numbers(float o_scale) {
  return {{cudnn_id::kDescaleQ, 1},       {cudnn_id::kDescaleK, 1},
          {cudnn_id::kDescaleV, 1},       {cudnn_id::kDescaleS, 1 / kScaleOfP},
          {cudnn_id::kScaleS, kScaleOfP}, {cudnn_id::kScaleO, 1 / o_scale},
          {cudnn_id::kAmaxS, 0},          {cudnn_id::kAmaxO, 0}};
}

}  // namespace flashcore::bench
