#include "cuda/fingerprints.hpp"

#include <cstddef>

namespace flashcore::cuda {
namespace {

struct Entry {
  std::string_view file, hash;
};
constexpr Entry kEntries[] = {
#include "cuda/fingerprints.inc"
};
constexpr std::string_view kLadder = "ladder/";

}  // namespace

std::string_view fingerprint(std::string_view file) {
  for (const Entry& entry : kEntries) {
    if (entry.file == file) return entry.hash;
  }
  return {};
}

std::string_view rung_fingerprint(std::string_view rung) {
  std::string_view found;
  size_t longest = 0;
  for (const Entry& entry : kEntries) {
    if (!entry.file.starts_with(kLadder)) continue;
    const std::string_view stem = entry.file.substr(kLadder.size());
    if (rung.starts_with(stem) && stem.size() > longest) {
      longest = stem.size();
      found = entry.hash;
    }
  }
  return found;
}

}  // namespace flashcore::cuda
