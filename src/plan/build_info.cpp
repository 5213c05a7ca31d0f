#include "build_info.hpp"

#include "cpu/target.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore {

BuildInfo build_info() {
  BuildInfo info;
  info.version = build::kVersion;
  info.compiler = build::kCompiler;
  info.build_type = build::kBuildType;
  info.cuda_targets = build::kCudaTargets;
  info.cuda = !info.cuda_targets.empty();
  info.cpu_target = cpu::to_string(cpu::chosen_target());
  return info;
}

}  // namespace flashcore
