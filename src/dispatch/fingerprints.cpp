#include "dispatch/fingerprints.hpp"

#include <cstddef>

namespace flashcore {
namespace {

struct Entry {
  std::string_view name, hash;
};
constexpr Entry kEntries[] = {
#include "dispatch/fingerprints.inc"
};
constexpr std::string_view kLadder = "ladder/";

}  // namespace

std::string_view kernel_fingerprint(std::string_view kernel) {
  std::string_view found;
  size_t longest = 0;
  for (const Entry& entry : kEntries) {
    std::string_view stem = entry.name;
    if (stem.starts_with(kLadder)) stem.remove_prefix(kLadder.size());
    if (kernel.starts_with(stem) && stem.size() > longest) {
      longest = stem.size();
      found = entry.hash;
    }
  }
  return found;
}

}  // namespace flashcore
