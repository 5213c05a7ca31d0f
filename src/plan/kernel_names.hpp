// Names of kernels as callers write them: KERNEL or KERNEL:VARIANT, and a config after either
// (KERNEL:CONFIG, KERNEL:VARIANT:CONFIG). Former names count, too.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace flashcore {

struct FormerName {
  std::string_view former, now;
};
std::span<const FormerName> former_names();

// Returns the text with a former name replaced.
std::string present_name(std::string_view text);

// `name`: of a variant or a kernel of the table, unless there is none. A name of a variant goes before
// one of a config.
struct AskedName {
  std::string name, config;
};
AskedName asked_name(std::string_view text);

// The text for both, as above.
std::string with_config(std::string_view name, std::string_view config);

}  // namespace flashcore
