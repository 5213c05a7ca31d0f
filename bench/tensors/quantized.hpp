// A problem with fp8 inputs, made from one with wider inputs by flashcore::quantize.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"
#include "flashcore/quantize.hpp"

namespace flashcore::bench {

struct QuantizeChoice {
  // The granularity of scales: the tensor, an entry (in pages: a page), or a head of an entry.
  enum class Scales { tensor, entry, head };

  DType dtype = DType::f8e4m3;
  Scales scales = Scales::head;
  int64_t kv_block = 0;   // rows of k and v per scale; 0: all
  bool keep_q = false;    // quantises only k and v, as for a cache
  bool smooth_k = false;  // the mean of k is subtracted
};

struct QuantizedProblem {
  HostProblem host;                  // like the wider one, with the same output types
  std::optional<HostTensor> k_mean;  // [B, Hkv, D], with smooth_k
};

// The tensors of one run; null for absent ones.
struct QuantizeTensors {
  const HostTensor& x;
  HostTensor& x_out;
  HostTensor& scale;
  HostTensor* mean = nullptr;
  const HostTensor* cu_seqlens = nullptr;
  const HostTensor* seqlens = nullptr;
};
// Runs quantize: on the CPU, or on a device with copies of the tensors (device/quantizer.hpp).
using Quantizer = std::function<Status(const Quantize&, const QuantizeTensors&)>;
Quantizer cpu_quantizer(int threads = 0);

// The quantised problem, without data. Refuses smoothing that would change the result.
Result<Problem> quantized_problem(const Problem& problem, const QuantizeChoice& choice);

Result<QuantizedProblem> quantized(const HostProblem& wide, const QuantizeChoice& choice,
                                   const Quantizer& quantizer);

}  // namespace flashcore::bench
