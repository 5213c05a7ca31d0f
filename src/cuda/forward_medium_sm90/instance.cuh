// What one translation unit of compiled kernels defines; instances.cpp chooses among them.
#pragma once

#include "cuda/forward_medium_sm90/kernel.cuh"
#include "cuda/forward_medium_sm90/launch.hpp"
#include "cuda/forward_small_sm90/compiled_kernel.cuh"

namespace flashcore::cuda::forward_medium_sm90 {

template <class Element, Cover kCover>
struct MediumKernel {
  static constexpr int kClusterBlocks = kRanks, kBlockThreads = kThreads;
  static constexpr int kSharedBytes = kSmemBytes;
  static const void* kernel() {
    return reinterpret_cast<const void*>(&forward_medium_kernel<Element, kCover>);
  }
};

template <class Element>
InstanceEntry compiled(Cover cover) {
  using forward_small_sm90::CompiledKernel;
  switch (cover) {
    case Cover::whole:
      return CompiledKernel<MediumKernel<Element, Cover::whole>>::entry();
    case Cover::band:
      return CompiledKernel<MediumKernel<Element, Cover::band>>::entry();
    default:
      return CompiledKernel<MediumKernel<Element, Cover::any>>::entry();
  }
}

}  // namespace flashcore::cuda::forward_medium_sm90
