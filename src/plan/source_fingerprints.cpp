#include "plan/source_fingerprints.hpp"

#include "build_info.hpp"

namespace flashcore {
namespace {

struct Entry {
  std::string_view kernel, fingerprint;
};
constexpr Entry kEntries[] = {
#include "plan/source_fingerprints.inc"
};

}  // namespace

std::string_view source_fingerprint(const Kernel& kernel) {
  const std::string_view name = kernel.sources.empty() ? kernel.name : kernel.sources;
  for (const Entry& entry : kEntries) {
    if (entry.kernel == name) return entry.fingerprint;
  }
  return {};
}

std::string_view compiler_of(const Kernel& kernel) {
  return kernel.device == DeviceKind::cpu ? build::kCompiler : build::kCudaCompiler;
}

}  // namespace flashcore
