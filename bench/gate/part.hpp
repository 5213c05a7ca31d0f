// Some heads and rows of a batch entry, in all tensors of a call: what a gate judges of a problem
// that is too large to be judged whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Copies elements [begin, begin + to.elements()) of a tensor, in row-major order of its indices,
// into the contiguous tensor `to`.
using ReadElements = std::function<void(std::string_view name, int64_t begin, HostTensor& to)>;

// Writes `from` to elements [begin, begin + from.elements()) of a tensor.
using WriteElements =
    std::function<void(std::string_view name, int64_t begin, const HostTensor& from)>;

ReadElements reader_of(const HostProblem& host);  // `host` must outlive it

// Reads `elements` one after the other, whatever is asked for.
ReadElements reader_of(std::span<const std::byte> elements);

struct Range {
  int64_t first = 0, count = 0;
};

struct Part {
  int64_t entry = 0;
  Range heads_q, heads_kv, queries, keys;
  int64_t begin_q = 0, begin_kv = 0;  // of the entry's rows in packed tensors
};

// A part's elements of one tensor, in the order of a dense batch: [1, heads, rows, width]. The
// tensor has the axes of its operand (problem/operands.hpp); axes that a part does not name are
// taken whole, and a broadcast axis stays one.
class Piece {
 public:
  // `whole`: the tensor `name` of the problem, or of its gradients.
  Piece(const Problem& problem, std::string_view name, const TensorDesc& whole, const Part& part);

  TensorDesc desc() const;  // contiguous
  void read(const ReadElements& read, HostTensor& to) const;
  void write(const WriteElements& write, const HostTensor& from) const;

 private:
  struct Axis {
    int64_t first, count, stride;  // in elements of the whole tensor, in row-major order
  };
  template <class Visit>
  void for_each_run(Visit&& visit) const;

  std::string_view name_;
  DType dtype_;
  std::vector<Axis> axes_;
};

// The part as a problem of its own with its inputs, a dense batch of one entry. It has no tree mask,
// no dropout in memory and no largest values, which depend on more than the part.
HostProblem read_part(const Problem& problem, const Part& part, const ReadElements& inputs);

}  // namespace flashcore::bench
