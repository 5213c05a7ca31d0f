// What one translation unit of compiled kernels defines; instances.cpp chooses among them.
#pragma once

#include "cuda/forward_sm90/common/compiled_kernel.cuh"
#include "cuda/forward_sm90/latency_wide/kernel.cuh"
#include "cuda/forward_sm90/latency_wide/launch.hpp"

namespace flashcore::cuda::forward_sm90::latency_wide {

template <class Element, Cover kCover>
struct MediumKernel {
  static constexpr int kClusterBlocks = kRanks, kBlockThreads = kThreads;
  static constexpr int kSharedBytes = kSmemBytes;
  static auto kernel() { return &forward_latency_wide_kernel<Element, kCover>; }
};

template <class Element>
InstanceEntry compiled(Cover cover) {
  switch (cover) {
    case Cover::whole:
      return CompiledKernel<MediumKernel<Element, Cover::whole>>::entry();
    case Cover::band:
      return CompiledKernel<MediumKernel<Element, Cover::band>>::entry();
    default:
      return CompiledKernel<MediumKernel<Element, Cover::any>>::entry();
  }
}

}  // namespace flashcore::cuda::forward_sm90::latency_wide
