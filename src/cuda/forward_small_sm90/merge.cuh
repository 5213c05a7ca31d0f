// From the partial results of a cluster to O and LSE: which of the two ways.
#pragma once

#include <type_traits>

#include "cuda/forward_small_sm90/merge_shares.cuh"
#include "cuda/forward_small_sm90/merge_sums.cuh"

namespace flashcore::cuda::forward_small_sm90 {

template <class S>
using Merge = std::conditional_t<S::kAddsUpFirst, MergeSums<S>, MergeShares<S>>;

}  // namespace flashcore::cuda::forward_small_sm90
