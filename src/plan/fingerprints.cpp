#include "plan/fingerprints.hpp"

#include "plan/device.hpp"

namespace flashcore {
namespace {

struct Entry {
  std::string_view kernel;
  int family;  // the compute capability it was recorded for; 0: the CPU
  std::string_view fingerprint;
};
constexpr Entry kEntries[] = {
#include "plan/fingerprints.inc"
#include "plan/machine_code.inc"
};

// Code runs on the later GPUs of its generation.
constexpr bool runs_on(int family, int compute_capability) {
  return family <= compute_capability && family / 10 == compute_capability / 10;
}

}  // namespace

std::string_view kernel_fingerprint(std::string_view kernel, int compute_capability) {
  const Entry* found = nullptr;
  kernel = kernel.substr(0, kernel.find(':'));
  for (const Entry& entry : kEntries) {
    if (entry.kernel == kernel && runs_on(entry.family, compute_capability) &&
        (found == nullptr || entry.family > found->family)) {
      found = &entry;
    }
  }
  return found != nullptr ? found->fingerprint : std::string_view();
}

std::string_view kernel_fingerprint(std::string_view kernel, Device device) {
  if (device.kind == DeviceKind::cpu) return kernel_fingerprint(kernel, 0);
  for (const DeviceInfo& info : cuda_devices()) {
    if (info.device.index == device.index) {
      return kernel_fingerprint(kernel, info.compute_capability);
    }
  }
  return {};
}

}  // namespace flashcore
