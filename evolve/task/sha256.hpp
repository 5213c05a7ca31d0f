// SHA-256 (FIPS 180-4), which identifies programs by content.
#pragma once

#include <string>
#include <string_view>

namespace flashcore::evolve {

std::string sha256(std::string_view bytes);  // 64 hexadecimal digits

}  // namespace flashcore::evolve
