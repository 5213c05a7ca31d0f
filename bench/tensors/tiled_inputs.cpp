#include "bench/tensors/tiled_inputs.hpp"

#include <algorithm>

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
  return pieces_.find(name)->second.bytes();
}

void TiledInputs::read(std::string_view name, int64_t begin, HostTensor& to) const {
  read_tiled(piece(name), begin, to);
}

void read_tiled(std::span<const std::byte> piece, int64_t begin, HostTensor& to) {
  const size_t size = size_of(to.desc().dtype);
  auto at = static_cast<size_t>(begin) * size % piece.size();
  for (std::span<std::byte> left = to.bytes(); !left.empty(); at = 0) {
    const size_t count = std::min(left.size(), piece.size() - at);
    std::copy_n(piece.data() + at, count, left.data());
    left = left.subspan(count);
  }
}

}  // namespace flashcore::bench
