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

std::string_view source_fingerprint(const Variant& variant) {
  const std::string_view name =
      variant.sources.empty() ? kernel_part(variant.name) : variant.sources;
  for (const Entry& entry : kEntries) {
    if (entry.kernel == name) return entry.fingerprint;
  }
  return {};
}

std::string_view compiler_of(const Variant& variant) {
  return variant.device == DeviceKind::cpu ? build::kCompiler : build::kCudaCompiler;
}

}  // namespace flashcore
