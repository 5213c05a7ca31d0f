// Quantisation in the form that backends read: validated, with uniform strides.
#pragma once

#include <cstdint>

#include "flashcore/quantize.hpp"
#include "problem/problem.hpp"

namespace flashcore {

struct QuantizeProblem {
  DType dtype = DType::f32;
  DType out_dtype = DType::f8e4m3;
  bool packed = false;
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t rows = 0;   // per entry; packed: the maximum
  int64_t total = 0;  // packed: the sum over all entries
  int64_t head_dim = 0;
  RowStrides x, x_out;
  // A scale stride is 0 where one scale covers the whole dimension; extents are the tensor's.
  ScaleInput scale;
  int64_t scale_batches = 0, scale_heads = 0, scale_blocks = 0;
  int64_t scale_block = 1;  // rows
  bool has_mean = false;
  RowStrides mean;  // strides of batch and head
  VectorInput cu_seqlens, seqlens;

  int64_t scales() const { return scale_batches * scale_heads * scale_blocks; }
};

Result<QuantizeProblem> resolve(const Quantize& what);

// Checks pointers of the run's device; checks lengths only if the host can read them.
Status check_arguments(const Quantize& what, const QuantizeProblem& problem,
                       const QuantizeArguments& args, bool host_reads_lengths);

// The rows of entry b of a run whose lengths the host can read.
struct EntryRows {
  int64_t begin = 0;  // first row in packed tensors
  int64_t in_use = 0;
  int64_t all = 0;  // rows that belong to the entry
};
EntryRows entry_rows(const QuantizeProblem& problem, const QuantizeArguments& args, int64_t b);

}  // namespace flashcore
