// A problem with fp8 inputs, made of one with wider ones by flashcore::quantize.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"
#include "flashcore/quantize.hpp"

namespace flashcore::bench {

struct QuantizeChoice {
  // What one scale serves: the tensor, an entry (in pages: a page), or a head of one.
  enum class Scales { tensor, entry, head };

  DType dtype = DType::f8e4m3;
  Scales scales = Scales::head;
  int64_t kv_block = 0;   // rows of k and v that share a scale; 0: all
  bool keep_q = false;    // k and v alone, as a cache has them
  bool smooth_k = false;  // the mean of k is subtracted
};

struct QuantizedProblem {
  HostProblem host;                  // as the wider one, and outputs of its types
  std::optional<HostTensor> k_mean;  // [B, Hkv, D], with smooth_k
};

// The tensors of one run; null where it has none.
struct QuantizeTensors {
  const HostTensor& x;
  HostTensor& x_out;
  HostTensor& scale;
  HostTensor* mean = nullptr;
  const HostTensor* cu_seqlens = nullptr;
  const HostTensor* seqlens = nullptr;
};
// What runs it: the CPU, or a device with copies of the tensors (device/quantizer.hpp).
using Quantizer = std::function<Status(const Quantize&, const QuantizeTensors&)>;
Quantizer cpu_quantizer(int threads = 0);

// What the problem becomes, without data. Refuses what smoothing would make wrong.
Result<Problem> quantized_problem(const Problem& problem, const QuantizeChoice& choice);

Result<QuantizedProblem> quantized(const HostProblem& wide, const QuantizeChoice& choice,
                                   const Quantizer& quantizer);

}  // namespace flashcore::bench
