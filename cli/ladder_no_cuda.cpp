// The ladder's stub for builds without CUDA.
#include "cli/without_cuda.hpp"

namespace flashcore::cli {

Command ladder_command() {
  return without_cuda("ladder", "Gate and time every rung of the ladder, and write the evidence");
}

}  // namespace flashcore::cli
