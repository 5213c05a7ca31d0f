// Quantisation on a GPU: from a validated run to its launches.
#pragma once

#include "flashcore/flashcore.hpp"
#include "problem/quantize.hpp"

namespace flashcore::cuda::convert::quantize {

inline constexpr const char* kName = "quantize_sm80";

// Asynchronous in `stream`; allocates nothing.
Status run(const QuantizeProblem& p, const QuantizeArguments& args, const DeviceInfo& device,
           Stream stream);

}  // namespace flashcore::cuda::convert::quantize
