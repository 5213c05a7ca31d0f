#include "bench/gate/part.hpp"

#include <algorithm>
#include <array>

#include "problem/operands.hpp"
#include "problem/problem.hpp"

namespace flashcore::bench {
namespace {

const Line& line_of(std::string_view name) {
  for (const Line& line : kOperands<Gradients>) {
    if (line.name == name) return line;
  }
  return *std::find_if(kOperands<Problem>.begin(), kOperands<Problem>.end(),
                       [&](const Line& line) { return line.name == name; });
}

// The shape of a dense batch; if there are two, the one of this rank; null: none has it.
const Shape* dense_shape(const Line& line, bool v_transposed, int32_t rank) {
  const int forms = v_transposed ? kTransposed : 0;
  const auto found =
      std::find_if(line.shapes.all.begin(), line.shapes.all.end(),
                   [&](const Shape& one) { return (one.forms & ~forms) == 0 && one.rank == rank; });
  return found == line.shapes.all.end() ? nullptr : &*found;
}

// The part's range of an axis with `all` elements.
Range range_of(uint8_t extent, const Part& part, int64_t all) {
  switch (extent) {
    case extent_index("B"):
      return {part.entry, 1};
    case extent_index("Hq"):
      return part.heads_q;
    case extent_index("Hkv"):
      return part.heads_kv;
    case extent_index("Sq"):
      return part.queries;
    case extent_index("Skv"):
      return part.keys;
    default:
      return {0, all};
  }
}

}  // namespace

ReadElements reader_of(const HostProblem& host) {
  return [&host](std::string_view name, int64_t begin, HostTensor& to) {
    const HostTensor& from = host.at(name);
    for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(begin + i));
  };
}

ReadElements reader_of(std::span<const std::byte> elements) {
  return [left = elements](std::string_view, int64_t, HostTensor& to) mutable {
    std::copy_n(left.begin(), to.bytes().size(), to.bytes().begin());
    left = left.subspan(to.bytes().size());
  };
}

Piece::Piece(const Problem& problem, std::string_view name, const TensorDesc& whole,
             const Part& part)
    : name_(name), dtype_(whole.dtype) {
  const Line& line = line_of(name);
  const Shape* dense = dense_shape(line, problem.v_transposed, whole.rank);
  const bool packed = dense == nullptr;  // [total, H, ...]
  if (packed) dense = dense_shape(line, problem.v_transposed, whole.rank + 1);
  std::array<int64_t, TensorDesc::kMaxRank> strides{};
  int64_t stride = 1;
  for (auto d = static_cast<size_t>(whole.rank); d-- > 0;) {
    strides[d] = stride;
    stride *= whole.shape[d];
  }
  if (packed) axes_.push_back({0, 1, 0});  // of the entries
  for (size_t n = packed ? 1 : 0; n < static_cast<size_t>(dense->rank); ++n) {
    const bool packed_rows = packed && n == 2;
    const size_t d = packed_rows ? 0 : packed ? std::max<size_t>(n - 1, 1) : n;
    Range range = range_of(dense->extents[n], part, whole.shape[d]);
    if (dense->broadcast[n] && whole.shape[d] == 1) range = {0, 1};
    if (packed_rows) {
      range.first += dense->extents[n] == extent_index("Sq") ? part.begin_q : part.begin_kv;
    }
    axes_.push_back({range.first, range.count, strides[d]});
  }
}

TensorDesc Piece::desc() const {
  std::vector<int64_t> shape;
  for (const Axis& axis : axes_) shape.push_back(axis.count);
  return contiguous(dtype_, shape);
}

// Calls visit(begin, count) for runs of elements that are neighbours in the whole tensor.
template <class Visit>
void Piece::for_each_run(Visit&& visit) const {
  size_t outer = axes_.size();
  int64_t run = 1, begin = 0, runs = 1;
  for (; outer > 0 && axes_[outer - 1].stride == run; --outer) {
    begin += axes_[outer - 1].first * run;
    run *= axes_[outer - 1].count;
  }
  for (size_t d = 0; d < outer; ++d) runs *= axes_[d].count;
  for (int64_t n = 0; n < runs && run > 0; ++n) {
    int64_t at = begin, rest = n;
    for (size_t d = outer; d-- > 0;) {
      at += (axes_[d].first + rest % axes_[d].count) * axes_[d].stride;
      rest /= axes_[d].count;
    }
    visit(at, run);
  }
}

void Piece::read(const ReadElements& read, HostTensor& to) const {
  auto next = to.bytes().begin();
  for_each_run([&](int64_t begin, int64_t count) {
    if (count == to.elements()) return read(name_, begin, to);
    HostTensor run(TensorDesc::contiguous(dtype_, {count}));
    read(name_, begin, run);
    next = std::copy(run.bytes().begin(), run.bytes().end(), next);
  });
}

void Piece::write(const WriteElements& write, const HostTensor& from) const {
  auto next = from.bytes().begin();
  for_each_run([&](int64_t begin, int64_t count) {
    HostTensor run(TensorDesc::contiguous(dtype_, {count}));
    std::copy_n(next, run.bytes().size(), run.bytes().begin());
    next += std::ssize(run.bytes());
    write(name_, begin, run);
  });
}

HostProblem read_part(const Problem& problem, const Part& part, const ReadElements& inputs) {
  Problem one = problem;
  one.cu_seqlens_q.reset(), one.cu_seqlens_kv.reset();
  one.max_seqlen_q = one.max_seqlen_kv = 0;
  one.tree_mask.reset(), one.dropout_state.reset();
  for (const LargestValue& largest : kLargestOutputs) (one.*largest.tensor).reset();
  for (const auto& line : kOperands<Problem>) {
    if (line.find(one) == nullptr) continue;
    line.set(one, Piece(problem, line.name, *line.find(problem), part).desc());
  }
  const bool v_in_k = v_is_in_k(problem);
  if (v_in_k) one.v = first_columns(one.k, problem.v.shape[3]);
  HostProblem host = allocate(one);
  for (const auto& line : kOperands<Problem>) {
    if (line.find(one) == nullptr || line.is_output || (line.name == "v" && v_in_k)) continue;
    Piece(problem, line.name, *line.find(problem), part).read(inputs, host.at(line.name));
  }
  return host;
}

}  // namespace flashcore::bench
