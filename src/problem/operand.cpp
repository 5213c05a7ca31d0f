#include "problem/operand.hpp"

#include <algorithm>
#include <vector>

#include "problem/layout.hpp"
#include "problem/status.hpp"

namespace flashcore {
namespace {

constexpr DTypes kFloats = {DType::f32,    DType::f16,    DType::bf16,
                            DType::f8e4m3, DType::f8e5m2, DType::f64};

// The shape for these forms; of two, the one with the tensor's rank.
const Shape& shape_of(const Line& line, int forms, int32_t rank) {
  const auto& all = line.shapes.all;
  const auto* shape = std::find_if(all.begin(), all.end(),
                                   [&](const Shape& one) { return (one.forms & ~forms) == 0; });
  const auto* other = shape + 1;
  const bool has_other = other != all.end() && other->rank > 0 && other->forms == shape->forms;
  return has_other && other->rank == rank ? *other : *shape;
}

// The shape's other rank, for a sentence.
std::string or_rank(const Line& line, const Shape& shape) {
  for (const Shape& other : line.shapes.all) {
    if (&other == &shape || other.rank == 0 || other.forms != shape.forms) continue;
    return fmt::format(" (or rank {} for {})", other.rank, other.text());
  }
  return {};
}

}  // namespace

Extents::Extents() {
  values_.fill(-1);
  set("1", 1);
  set("2", 2);
}

void Extents::set(uint8_t index, int64_t value) {
  constexpr uint8_t kBatch = extent_index("B"), kStarts = extent_index("B + 1");
  values_[index] = value;
  if (index == kBatch) values_[kStarts] = value + 1;
  if (index == kStarts) values_[kBatch] = value - 1;
}

std::string DTypes::text() const {
  if (*this == kFloats) return "a floating-point type";
  std::vector<std::string_view> names;
  for (int32_t n = 0; n <= static_cast<int32_t>(DType::i64); ++n) {
    if (has(static_cast<DType>(n))) names.push_back(to_string(static_cast<DType>(n)));
  }
  const std::string_view last = names.back();
  names.pop_back();
  return names.empty() ? std::string(last) : fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::string Shape::written() const {
  std::string all;
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
    all += fmt::format("{}{}{}", i == 0 ? "" : ", ", kExtentNames[extents[i]],
                       broadcast[i] ? "|1" : "");
  }
  return "[" + all + "]";
}

std::string Line::written_shapes() const {
  std::string all;
  for (const Shape& shape : shapes.all) {
    if (shape.rank > 0 && shape.forms == 0) all += (all.empty() ? "" : " or ") + shape.written();
  }
  // Some operands are in calls of one form only.
  return all.empty() ? shapes.all[0].written() : all;
}

Status check_type(const Line& line, const TensorDesc& tensor) {
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value(line.name, tensor));
  if (line.types.has(tensor.dtype)) return {};
  return invalid("{}: dtype is {}, wanted {}", line.name, to_string(tensor.dtype),
                 line.types.text());
}

Status check_shape(const Line& line, const TensorDesc& tensor, int forms, Extents& extents) {
  const Shape& shape = shape_of(line, forms, tensor.rank);
  if (tensor.rank != shape.rank) {
    return invalid("{}: rank is {}, wanted {} for {}{}", line.name, tensor.rank, shape.rank,
                   shape.text(), or_rank(line, shape));
  }
  FLASHCORE_RETURN_IF_ERROR(check_layout(line.name, tensor, shape.rank, shape.text()));
  std::array<int64_t, TensorDesc::kMaxRank> wanted{};
  bool is_as_wanted = true, all_broadcast = true;
  const auto rank = static_cast<size_t>(shape.rank);
  for (size_t d = 0; d < rank; ++d) {
    const uint8_t extent = shape.extents[d];
    if (!extents.has(extent)) {
      if (extent == extent_index("B + 1") && tensor.shape[d] == 0) {
        return invalid("{}: shape is [0], wanted {}", line.name, shape.text());
      }
      extents.set(extent, tensor.shape[d]);
    }
    wanted[d] = extents.at(extent);
    is_as_wanted &= tensor.shape[d] == wanted[d] || (shape.broadcast[d] && tensor.shape[d] == 1);
    all_broadcast &= shape.broadcast[d];
  }
  if (!is_as_wanted) {
    return invalid("{}: shape is {}, wanted {} = [{}]{}", line.name, shape_text(tensor),
                   shape.text(), fmt::join(wanted.begin(), wanted.begin() + shape.rank, ", "),
                   all_broadcast ? ", where 1 may stand for any" : "");
  }
  if (shape.extents[rank - 1] < kContiguousExtents) {
    FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows(line.name, tensor));
  }
  return line.is_output ? check_no_overlap(line.name, tensor) : Status();
}

}  // namespace flashcore
