// Builds without CUDA have no GPU to profile.
#include "cli/without_cuda.hpp"

namespace flashcore::cli {

Command profile_command() {
  return without_cuda("profile", "Say what limits a kernel, from profiler counters");
}

}  // namespace flashcore::cli
