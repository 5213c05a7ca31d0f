// Stands for src/cuda/ptx/pin.cuh: the simulator need not constrain the compiler.
#pragma once

namespace flashcore::cuda::ptx {

template <class... Values>
void pin(Values&...) {}
template <class T>
T opaque(T x) {
  return x;
}

}  // namespace flashcore::cuda::ptx
