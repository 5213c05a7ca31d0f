// The host's half of packed masks: what a plan needs to know of the launch that packs one.
#pragma once

#include <cstdint>

#include "cuda/attention/mask_bits.hpp"
#include "problem/problem.hpp"

namespace flashcore::cuda::host {

struct MaskBitsPlan {
  attention::PackMask params;  // without pointers
  int64_t words;               // of the workspace, aligned to 16 bytes
  int64_t blocks;              // of the launch; may be more than a launch takes
};

// For a problem with a mask.
MaskBitsPlan plan_mask_bits(const ForwardProblem& p, attention::BitsAlong along);

// `mask`: of a run; `words`: in its workspace.
void bind_mask_bits(attention::PackMask& params, const void* mask, uint32_t* words);

}  // namespace flashcore::cuda::host
