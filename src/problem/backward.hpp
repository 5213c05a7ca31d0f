// A backward problem in the form that every backend reads: validated, with uniform strides.
#pragma once

#include <cstdint>

#include "problem/problem.hpp"

namespace flashcore {

// The inputs and outputs of the backward pass of `forward`. The forward pass' o and lse are inputs
// here, and has_lse is true; dtypes are f32, f16 or bf16.
struct BackwardProblem {
  ForwardProblem forward;

  // Inputs. d_o has the dtype of o.
  RowStrides d_o, d_lse;  // d_lse: row stride is between queries; nothing is contiguous
  bool has_d_lse = false;
  DType d_lse_dtype = DType::f32;

  // Outputs. Every element is written; it is zero where no pair is visible.
  RowStrides dq, dk, dv;
  DType dq_dtype = DType::f32;
  DType dk_dtype = DType::f32;
  DType dv_dtype = DType::f32;
  // Summed over each dimension whose stride is 0.
  PairInput d_bias;
  VectorInput d_sinks, d_alibi_slopes;
  DType d_sinks_dtype = DType::f32;
  DType d_alibi_slopes_dtype = DType::f32;
  // Extents of d_bias, [B|1, Hq|1, Sq|1, Skv|1], and its number of elements.
  int64_t d_bias_extents[4] = {0, 0, 0, 0};
  int64_t d_bias_elements = 0;
  int64_t d_alibi_slopes_elements = 0;

  // Returns whether an output is f64, which only the reference writes.
  constexpr bool writes_f64() const {
    return dq_dtype == DType::f64 || dk_dtype == DType::f64 || dv_dtype == DType::f64 ||
           (d_bias.present && d_bias.dtype == DType::f64) ||
           (d_sinks.present && d_sinks_dtype == DType::f64) ||
           (d_alibi_slopes.present && d_alibi_slopes_dtype == DType::f64);
  }
};

// Checks the problem and its gradients, and resolves both.
Result<BackwardProblem> resolve(const Problem& problem, const Gradients& gradients);

}  // namespace flashcore
