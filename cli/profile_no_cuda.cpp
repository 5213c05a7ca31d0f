// The profiler's stub for builds without CUDA.
#include "cli/without_cuda.hpp"

namespace flashcore::cli {

Command profile_command() {
  return without_cuda("profile", "Say what limits a kernel, from profiler counters");
}

}  // namespace flashcore::cli
