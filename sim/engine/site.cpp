#include "engine/site.hpp"

#include <dlfcn.h>

#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

namespace flashcore::sim {
namespace {

std::string base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// Returns the innermost line of the instruction before `address`, by addr2line of binutils.
std::string look_up(uint64_t address) {
  char hex[32];
  std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(address));
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0) return hex;
  // It is a return address: one byte earlier is inside the call.
  const uint64_t offset = address - 1 - reinterpret_cast<uintptr_t>(info.dli_fbase);
  // The program's own name may be relative to a folder that is no longer the current one.
  const bool is_library = std::strstr(info.dli_fname, ".so") != nullptr;
  std::array<char, PATH_MAX> path{};
  if (realpath(is_library ? info.dli_fname : "/proc/self/exe", path.data()) == nullptr) return hex;
  std::array<char, PATH_MAX + 64> command{};
  std::snprintf(command.data(), command.size(), "addr2line -e '%s' 0x%llx 2>/dev/null", path.data(),
                static_cast<unsigned long long>(offset));
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.data(), "r"), pclose);
  std::array<char, 512> line{};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return hex;
  std::string text = line.data();
  text = text.substr(0, text.find_first_of(" \n"));
  return text.empty() || text[0] == '?' ? hex : base_name(text);
}

}  // namespace

std::string Site::text() const {
  if (bits_ == 0) return "an unknown line";
  const uint64_t line = bits_ >> kAddressBits;
  const uint64_t address = bits_ & ((uint64_t{1} << kAddressBits) - 1);
  if (line != 0) {
    return base_name(reinterpret_cast<const char*>(address)) + ":" + std::to_string(line);
  }
  static std::map<uint64_t, std::string> known;
  const auto [entry, is_new] = known.try_emplace(address);
  if (is_new) entry->second = look_up(address);
  return entry->second;
}

}  // namespace flashcore::sim
