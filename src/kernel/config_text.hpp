// Configs of kernels as text: "block_kv=128,rows=96".
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

namespace flashcore {

// The number that a config gives a name; `otherwise` where it gives none.
inline int64_t config_value(std::string_view config, std::string_view name, int64_t otherwise) {
  while (!config.empty()) {
    const std::string_view part = config.substr(0, config.find(','));
    config.remove_prefix(part.size() < config.size() ? part.size() + 1 : part.size());
    if (part.size() <= name.size() || !part.starts_with(name) || part[name.size()] != '=') continue;
    int64_t value = otherwise;
    (void)std::from_chars(part.data() + name.size() + 1, part.data() + part.size(), value);
    return value;
  }
  return otherwise;
}

}  // namespace flashcore
