// N(0, 1) inputs of any size in the time of a small draw: each tensor repeats one drawn piece.
//
// Rows of repeated pieces do not line up, because a piece's length is not a multiple of a row's.
// With the same pieces, inputs are the same on the host, on a device, and in another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Elements [begin, begin + to.elements()) of a tensor that repeats `piece`, in row-major order;
// `to` is contiguous and of the piece's type.
void read_tiled(std::span<const std::byte> piece, int64_t begin, HostTensor& to);

class TiledInputs {
 public:
  static constexpr int64_t kPieceElements = (1 << 20) + 8;

  // Pieces of q, k, v and d_o.
  explicit TiledInputs(DType dtype);

  DType dtype() const { return dtype_; }
  std::span<const std::byte> piece(std::string_view name) const;

  // Elements [begin, begin + to.elements()) of the tensor, in row-major order; `to` is contiguous.
  void read(std::string_view name, int64_t begin, HostTensor& to) const;

 private:
  DType dtype_;
  std::map<std::string, HostTensor, std::less<>> pieces_;
};

// The inputs bias, mask and alibi_slopes that a problem has, and their pieces; the same in another process.
struct OptionPiece {
  const char* name;
  TensorDesc desc;  // of the whole
  HostTensor piece;
};
std::vector<OptionPiece> pieces_of_options(const Problem& problem, Random& random);
inline Random random_of_options() { return Random(4); }

}  // namespace flashcore::bench
