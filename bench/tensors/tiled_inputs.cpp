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

std::vector<OptionPiece> pieces_of_options(const Problem& problem, Random& random) {
  std::vector<OptionPiece> pieces;
  const auto add = [&](const char* name, const std::optional<TensorDesc>& desc, auto&& draw) {
    if (!desc) return;
    const int64_t whole =
        static_cast<int64_t>(element_bytes(*desc)) / static_cast<int64_t>(size_of(desc->dtype));
    HostTensor piece(
        TensorDesc::contiguous(desc->dtype, {std::min(whole, TiledInputs::kPieceElements)}));
    piece.fill(draw);
    pieces.push_back({name, *desc, std::move(piece)});
  };
  add("bias", problem.bias, [&] { return random.normal(); });
  add("mask", problem.mask, [&] { return random.bits() % 4 != 0 ? 1.0 : 0.0; });
  const auto heads = static_cast<double>(problem.q.shape[1]);
  add("alibi_slopes", problem.alibi_slopes,
      [&, head = 0]() mutable { return std::exp2(-8.0 * ++head / heads); });
  return pieces;
}

}  // namespace flashcore::bench
