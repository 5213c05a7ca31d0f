#include "plan/fingerprints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "plan/device.hpp"

namespace flashcore {
namespace {

struct CpuKernel {
  std::string_view name, fingerprint;
};
constexpr CpuKernel kCpuKernels[] = {
#include "plan/fingerprints.inc"
};

constexpr DeviceFunction kFunctions[] = {
    {},  // the only element without CUDA
#include "plan/machine_code.inc"
};

// Returns the code that a GPU runs: the newest code of its own generation that it supports.
const DeviceFunction* code_of(std::string_view name, int compute_capability,
                              std::span<const DeviceFunction> functions) {
  const DeviceFunction* found = nullptr;
  for (const DeviceFunction& one : functions) {
    const bool runs =
        one.target <= compute_capability && one.target / 10 == compute_capability / 10;
    if (runs && one.name == name && (found == nullptr || one.target > found->target)) found = &one;
  }
  return found;
}

}  // namespace

std::span<const DeviceFunction> device_functions() { return std::span(kFunctions).subspan(1); }

std::string_view cpu_fingerprint(std::string_view kernel) {
  kernel = kernel.substr(0, kernel.find(':'));
  for (const CpuKernel& one : kCpuKernels) {
    if (one.name == kernel) return one.fingerprint;
  }
  return {};
}

std::string code_fingerprint(const std::set<std::string>& launched, int compute_capability,
                             std::span<const DeviceFunction> functions) {
  const DeviceFunction* newest = nullptr;
  std::set<std::string_view> digests;
  for (const std::string& name : launched) {
    const DeviceFunction* const code = code_of(name, compute_capability, functions);
    if (code == nullptr) return {};
    if (newest == nullptr || code->target > newest->target) newest = code;
    digests.insert(code->digest);
  }
  if (newest == nullptr) return {};
  std::string text = fmt::format("{} sm_{}", newest->compiler, newest->target);
  for (const std::string_view digest : digests) text.append(" ").append(digest);
  return text;
}

std::string fingerprint_of(std::string_view kernel, Device device,
                           const std::set<std::string>& launched) {
  if (device.kind == DeviceKind::cpu) return std::string(cpu_fingerprint(kernel));
  for (const DeviceInfo& info : cuda_devices()) {
    if (info.device.index == device.index) {
      return code_fingerprint(launched, info.compute_capability);
    }
  }
  return {};
}

bool is_current(std::string_view kernel, std::string_view fingerprint,
                std::span<const DeviceFunction> functions) {
  if (const std::string_view sources = cpu_fingerprint(kernel); !sources.empty()) {
    return fingerprint == sources;
  }
  const std::string_view compiler = fingerprint.substr(0, fingerprint.find(" sm_"));
  size_t at = fingerprint.find(' ', std::min(compiler.size() + 1, fingerprint.size()));
  if (at == std::string_view::npos) return false;  // text without digests
  int target = 0;
  (void)std::from_chars(fingerprint.data() + compiler.size() + 4, fingerprint.data() + at, target);
  const auto has = [&](std::string_view digest) {
    return std::any_of(functions.begin(), functions.end(), [&](const DeviceFunction& one) {
      return one.digest == digest && one.compiler == compiler && one.target / 10 == target / 10;
    });
  };
  for (constexpr size_t kDigits = 16; at < fingerprint.size(); at += 1 + kDigits) {
    if (!has(fingerprint.substr(at + 1, kDigits))) return false;
  }
  return true;
}

}  // namespace flashcore
