// Which sources the kernels of this build were compiled from.
#pragma once

#include <string_view>

namespace flashcore {

// Of a kernel of the table, a rung of the ladder among them: the first 16 hexadecimal digits of a
// SHA-256 over its files and everything of ours that they include. Variants share the fingerprint
// of the rung or family whose name begins theirs. Empty for a name that is no kernel's.
std::string_view kernel_fingerprint(std::string_view kernel);

}  // namespace flashcore
