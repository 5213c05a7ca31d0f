// A CUDA runtime that launches nothing and writes down what it was asked to launch. Linked instead
// of the real one, so that launch geometry is known without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashcore::fake {

struct Launch {
  std::string kernel;  // mangled
  int64_t blocks = 0;
  int64_t threads = 0;         // a block
  int64_t dynamic_shared = 0;  // bytes a block
  int device = 0;              // the current one at the launch
  int64_t unwritten_maps = 0;  // tensor maps passed that nothing encoded since take_launches()
};

struct Gpu {
  int compute_capability = 80;
  int multiprocessors = 108;
  int64_t shared_memory_a_block = 163 * 1024;
};

void use(const Gpu& gpu);
std::vector<Launch> take_launches();  // since the last call
int current_device();                 // there are two, alike; at first 0 is current

}  // namespace flashcore::fake
