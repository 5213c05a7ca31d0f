// Plans and runs over the recording runtime: their GPU, and pointers that nothing follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fake_runtime.hpp"
#include "flashcore/flashcore.hpp"
#include "kernel/plan_context.hpp"

namespace flashcore::fake {

inline PlanContext context_of(const Gpu& gpu, int device = 0) {
  PlanContext context;
  context.device.device = {DeviceKind::cuda, device};
  context.device.compute_capability = gpu.compute_capability;
  context.device.multiprocessors = gpu.multiprocessors;
  context.device.shared_memory_per_block = gpu.shared_memory_per_block;
  return context;
}

alignas(256) inline std::byte memory[256];

template <class T = void>
T* any() {
  return reinterpret_cast<T*>(memory);
}

// As long as it is asked to be: gigabytes of it are never touched.
inline std::span<std::byte> workspace(size_t bytes) { return {memory, bytes}; }

// `offset` bytes from a multiple of 256.
inline Arguments arguments(size_t offset = 0) {
  Arguments args;
  args.q = args.k = args.v = memory + offset;
  args.o = args.lse = memory + offset;
  args.q_scale = args.k_scale = args.v_scale = any<const float>();
  args.dropout_state = any<const int64_t>();
  return args;
}

inline BackwardArguments backward_arguments(size_t offset = 0) {
  BackwardArguments args;
  args.forward = arguments(offset);
  void* const tensor = args.forward.o;
  args.forward.bias = tensor;
  args.forward.sinks = args.forward.alibi_slopes = args.forward.q_scale;
  args.d_o = args.dq = args.dk = args.dv = tensor;
  args.d_bias = args.d_sinks = args.d_alibi_slopes = tensor;
  return args;
}

}  // namespace flashcore::fake
