// A CUDA runtime that launches nothing and writes down what it was asked to launch. Linked instead
// of the real one, so that launches are known without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace flashcore::fake {

// The top 16 bits of every address that a run is given, and of nothing else: what has them in a
// recorded argument is a pointer.
inline constexpr uint64_t kAddressMark = 0x0F1C;

struct Launch {
  std::string kernel;  // mangled
  int64_t blocks = 0;
  int64_t threads = 0;         // a block
  int64_t dynamic_shared = 0;  // bytes per block
  int device = 0;              // the current one at the launch
  int64_t unwritten_maps = 0;  // tensor maps passed that nothing encoded since take_launches()
  bool ahead = false;          // its kernel was loaded before the last take_launches()
  std::string geometry;  // grid, block, shared bytes, launch attributes, the kernel's settings
  std::vector<std::byte> arguments;  // one after the other; a tensor map: what it was encoded from
};

struct Gpu {
  int compute_capability = 80;
  int multiprocessors = 108;
  int64_t shared_memory_per_block = 163 * 1024;
};
inline constexpr Gpu kGpus[] = {
    {80, 108, 163 * 1024}, {89, 58, 99 * 1024}, {90, 132, 227 * 1024}};  // one per family

void use(const Gpu& gpu);
// The sizes of each kernel's arguments, by its mangled name. Arguments of others are not recorded.
void use(std::map<std::string, std::vector<size_t>> argument_sizes);
std::vector<Launch> take_launches();  // since the last call
int current_device();                 // there are two, alike; at first 0 is current

void have_devices(int count);  // how many cudaGetDeviceCount finds; at first none
// The next calls of a function of the runtime, of a look-up of one of the driver, or "launch" fail.
void fail(std::string_view function, int times);
void set_last_error(int error);  // an earlier call's, of whoever called the library
int last_error();
void give_context(int device);  // which since CUDA 12 cudaSetDevice does, too
bool has_context(int device);
void forget();  // everything but the kernels, the GPU and how many there are

}  // namespace flashcore::fake
