// Which sources the kernels of this build were compiled from.
#pragma once

#include <string_view>

namespace flashcore::cuda {

// The first 16 hexadecimal digits of a SHA-256 over src/cuda/<file>.cu and everything of ours that
// it includes; `file` is "ladder/04_wmma_pv". Empty for a file that is not there.
std::string_view fingerprint(std::string_view file);

// The same for a rung of the ladder: the file whose name begins the rung's name, so that variants
// of one file share its fingerprint.
std::string_view rung_fingerprint(std::string_view rung);

}  // namespace flashcore::cuda
