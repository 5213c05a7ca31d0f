#include "cpu/target.hpp"

#include <algorithm>
#include <array>
#include <vector>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "problem/environment.hpp"

namespace flashcore::cpu {
namespace {

#if defined(__x86_64__)

// Linux grants the 8 KiB of tile registers only on request (arch_prctl(2)).
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

struct Leaf {
  uint32_t eax, ebx, ecx, edx;
};

Leaf cpuid(uint32_t leaf, uint32_t subleaf) {
  Leaf out{};
  __asm__("cpuid"
          : "=a"(out.eax), "=b"(out.ebx), "=c"(out.ecx), "=d"(out.edx)
          : "a"(leaf), "c"(subleaf));
  return out;
}

// Not every supported compiler's __builtin_cpu_supports knows this name.
bool has_amx_bf16() {
  if (cpuid(0, 0).eax < 7) return false;
  constexpr uint32_t kTile = 1u << 24, kBF16 = 1u << 22;
  return (cpuid(7, 0).edx & (kTile | kBF16)) == (kTile | kBF16);
}

// AVX512_BF16 runs at the full rate of fp32 FMA on AMD's cores, and at half of it or less on
// Intel's, where widening to fp32 is as fast, and exact.
bool has_fast_bf16_dot() { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd"); }

std::vector<Target> detect() {
  __builtin_cpu_init();
  std::vector<Target> found;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return found;
  found.push_back(Target::sse4);
  // f16c came with AVX: every processor with AVX2 and FMA has it.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2")) {
    return found;
  }
  found.push_back(Target::avx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd")) {
    return found;
  }
  found.push_back(Target::avx3);
  if (has_fast_bf16_dot()) found.push_back(Target::avx3_bf16);
  if (has_amx_bf16() && may_use_tiles()) found.push_back(Target::amx);
  return found;
}

#else

std::vector<Target> detect() { return {Target::native}; }

#endif

constexpr std::array kNames{
    std::string_view("none"), std::string_view("NATIVE"), std::string_view("SSE4"),
    std::string_view("AVX2"), std::string_view("AVX3"),   std::string_view("AVX3_BF16"),
    std::string_view("AMX"),
};

}  // namespace

std::string_view to_string(Target target) { return kNames[static_cast<size_t>(target)]; }

std::span<const Target> supported_targets() {
  static const std::vector<Target> targets = detect();
  return targets;
}

Target chosen_target() {
  const std::span<const Target> targets = supported_targets();
  if (targets.empty()) return Target::none;
  if (const char* const forced = read_variable("FLASHCORE_CPU_TARGET")) {
    for (const Target target : targets) {
      if (to_string(target) == forced) return target;
    }
  }
  return targets.back();
}

Target target_for(bool bf16_inputs) {
  const Target chosen = chosen_target();
  return bf16_inputs ? chosen : std::min(chosen, Target::avx3);
}

}  // namespace flashcore::cpu
