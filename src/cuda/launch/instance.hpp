// A compiled kernel, and the lists of them. tools/instances.py makes the lists from each kernel.json: for nvcc and for
// the simulator with the kernels themselves, for tests of the host's side with stubs.
#pragma once

#include <span>
#include <string_view>

namespace flashcore::cuda::launch {

// What a launch needs to know of a kernel's blocks.
struct Shape {
  unsigned int threads = 0;
  unsigned int shared_bytes = 0;   // dynamic
  unsigned int blocks_per_sm = 1;  // as its __launch_bounds__ says
  unsigned int cluster = 1;        // blocks along x, as its __cluster_dims__ says
  bool prefers_shared =
      false;  // one SM's memory is for shared memory, as little as can be for its cache
};

// The address tells lists of parameter types apart.
template <class... Parameters>
inline constexpr char kSignature = 0;

struct Instance {
  std::string_view name;            // in its family, such as bf16_config3
  const void* function = nullptr;   // the kernel's host function
  const char* signature = nullptr;  // &kSignature<its parameters>
  Shape shape;
};

// The families with compiled kernels, and those kernels that were compiled.
std::span<const std::string_view> families();
std::span<const Instance> instances(std::string_view family);

// Null where it was not compiled.
const Instance* find_instance(std::string_view family, std::string_view name);

}  // namespace flashcore::cuda::launch
