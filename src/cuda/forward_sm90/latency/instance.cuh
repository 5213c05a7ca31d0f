// What one translation unit of compiled kernels defines; instances.cpp lists them.
#pragma once

#include "cuda/forward_sm90/common/compiled_kernel.cuh"
#include "cuda/forward_sm90/latency/kernel.cuh"

namespace flashcore::cuda::forward_sm90::latency {

template <int kConfigIndex, class Element, Cover kCover>
struct SmallKernel {
  static constexpr int kClusterBlocks = kConfigs[kConfigIndex].ranks, kBlockThreads = kThreads;
  static constexpr int kSharedBytes =
      static_cast<int>(sizeof(typename Shape<kConfigIndex, Element, kCover>::Shared));
  static auto kernel() { return &forward_latency_kernel<kConfigIndex, Element, kCover>; }
};

template <int kConfigIndex, class Element, Cover kCover>
using CompiledInstance = CompiledKernel<SmallKernel<kConfigIndex, Element, kCover>>;

}  // namespace flashcore::cuda::forward_sm90::latency
