// Quantisation of host tensors on any device.
#pragma once

#include "bench/tensors/quantized.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// On a GPU every run copies the tensors, including guards, to its memory.
Quantizer quantizer_on(const PlanOptions& options);

}  // namespace flashcore::bench
