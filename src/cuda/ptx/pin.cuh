// Forces values into registers at this point, unchanged: the compiler computes them neither
// later nor again. No instruction. The arguments of one call are available at the same time.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace flashcore::cuda::ptx {

template <class T>
concept RegisterWord = std::integral<T> && sizeof(T) == 4;
template <class T>
concept RegisterPair = std::is_pointer_v<T> ||(std::integral<T> && sizeof(T) == 8);

template <RegisterWord A>
__device__ __forceinline__ void pin(A& a) {
  asm volatile("" : "+r"(a));
}

template <RegisterWord A, RegisterWord B, RegisterWord C>
__device__ __forceinline__ void pin(A& a, B& b, C& c) {
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c));
}

template <RegisterWord A, RegisterWord B, RegisterWord C, RegisterWord D>
__device__ __forceinline__ void pin(A& a, B& b, C& c, D& d) {
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
}

template <RegisterPair A, RegisterPair B, RegisterWord C>
__device__ __forceinline__ void pin(A& a, B& b, C& c) {
  asm volatile("" : "+l"(a), "+l"(b), "+r"(c));
}

template <RegisterPair A, RegisterPair B, RegisterPair C, RegisterPair D, RegisterWord E>
__device__ __forceinline__ void pin(A& a, B& b, C& c, D& d, E& e) {
  asm volatile("" : "+l"(a), "+l"(b), "+l"(c), "+l"(d), "+r"(e));
}

__device__ __forceinline__ void pin(float (&x)[4]) {
  asm volatile("" : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3]));
}

// Returns the same value, so that values derived from it are computed here and not earlier.
template <class T>
requires RegisterWord<T> || RegisterPair<T> __device__ __forceinline__ T opaque(T x) {
  if constexpr (RegisterWord<T>) {
    asm volatile("" : "+r"(x));
  } else {
    asm volatile("" : "+l"(x));
  }
  return x;
}

}  // namespace flashcore::cuda::ptx
