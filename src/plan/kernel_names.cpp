#include "plan/kernel_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plan/table.hpp"

namespace flashcore {
namespace {

constexpr FormerName kFormerNames[] = {
#include "plan/former_names.inc"
};

// Returns whether a text is a name, or a name with more after it.
bool begins_with(std::string_view text, std::string_view name) {
  if (!text.starts_with(name)) return false;
  const std::string_view rest = text.substr(name.size());
  return rest.empty() || rest.front() == ':' || rest.front() == ' ';
}

}  // namespace

std::span<const FormerName> former_names() { return kFormerNames; }

std::string present_name(std::string_view text) {
  for (const auto& [former, now] : kFormerNames) {
    if (begins_with(text, former)) return fmt::format("{}{}", now, text.substr(former.size()));
  }
  return std::string(text);
}

AskedName asked_name(std::string_view text) {
  const std::string asked = present_name(text);
  std::string_view name = kernel_part(asked);
  for (const Variant& variant : variants()) {
    if (variant.name.size() > name.size() && begins_with(asked, variant.name)) name = variant.name;
  }
  return {std::string(name), asked.substr(std::min(name.size() + 1, asked.size()))};
}

std::string with_config(std::string_view name, std::string_view config) {
  return config.empty() ? std::string(name) : fmt::format("{}:{}", name, config);
}

std::vector<Kernel> kernels() {
  std::vector<Kernel> rows;
  const std::vector<Variant>& all = variants();
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    const std::string_view name = kernel_part(all[first].name);
    while (end < all.size() && kernel_part(all[end].name) == name) ++end;
    rows.push_back({name, std::span(all).subspan(first, end - first)});
  }
  return rows;
}

const Variant* find_variant(std::string_view name) {
  const std::vector<Variant>& all = variants();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Variant& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace flashcore
