#include "bench/tensors/tiled_inputs.hpp"

#include <algorithm>
#include <cstring>

#include "bench/tensors/random.hpp"

namespace flashcore::bench {

TiledInputs::TiledInputs(DType dtype) : dtype_(dtype) {
  uint64_t seed = 0;
  for (const char* const name : {"q", "k", "v", "d_o"}) {
    HostTensor piece(TensorDesc::contiguous(dtype, {kPieceElements}));
    Random random(++seed);
    piece.fill([&] { return random.normal(); });
    pieces_.emplace(name, std::move(piece));
  }
}

std::span<const std::byte> TiledInputs::piece(std::string_view name) const {
  const HostTensor& piece = pieces_.find(name)->second;
  const size_t bytes = static_cast<size_t>(kPieceElements) * size_of(dtype_);
  return {static_cast<const std::byte*>(piece.data()), bytes};
}

void TiledInputs::read(std::string_view name, int64_t begin, HostTensor& to) const {
  read_tiled(piece(name), begin, to);
}

void read_tiled(std::span<const std::byte> piece, int64_t begin, HostTensor& to) {
  const size_t size = size_of(to.desc().dtype);
  auto at = static_cast<size_t>(begin) * size % piece.size();
  auto* out = static_cast<std::byte*>(to.data());
  for (size_t left = static_cast<size_t>(to.elements()) * size; left > 0;) {
    const size_t count = std::min(left, piece.size() - at);
    std::memcpy(out, piece.data() + at, count);
    out += count;
    left -= count;
    at = 0;
  }
}

}  // namespace flashcore::bench
