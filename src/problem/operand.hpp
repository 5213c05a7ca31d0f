// What a tensor of a call is: a line of the tables in problem/operands.hpp, and the checks that follow from it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "flashcore/flashcore.h"
#include "flashcore/flashcore.hpp"

namespace flashcore {

// The names of extents, as in the public headers. Rows of the first four are contiguous.
inline constexpr std::string_view kExtentNames[] = {
    "D",     "Dqk",       "Dv",       "columns",     "B",         "B + 1",
    "H",     "Hq",        "Hkv",      "S",           "Sq",        "Skv",
    "Snew",  "total",     "blocks",   "num_pages",   "page_size", "total_q",
    "words", "max_pages", "total_kv", "total_pages", "positions", "rotary_dim / 2",
    "1",     "2"};
inline constexpr size_t kContiguousExtents = 4;

constexpr uint8_t extent_index(std::string_view name) {
  uint8_t index = 0;
  while (kExtentNames[index] != name) ++index;  // an unknown name is no constant expression
  return index;
}

struct ExtentName {
  uint8_t index;
  consteval ExtentName(const char* name) : index(extent_index(name)) {}  // NOLINT: a name
};

// The extents of a call that are known so far, or 0. The first tensor that has an extent gives it.
class Extents {
 public:
  Extents();
  int64_t operator[](ExtentName name) const { return std::max<int64_t>(0, values_[name.index]); }
  void set(ExtentName name, int64_t value) { set(name.index, value); }

  bool has(uint8_t index) const { return values_[index] >= 0; }
  int64_t at(uint8_t index) const { return values_[index]; }
  void set(uint8_t index, int64_t value);

 private:
  std::array<int64_t, std::size(kExtentNames)> values_;
};

// What changes the shapes of a call, as bits.
inline constexpr int kPacked = 1, kInPages = 2, kTransposed = 4;

// "[B|1, Hq, Sq, Dv]", for calls that have all these forms. "x|1": the extent is x, or 1 and is broadcast.
struct Shape {
  int forms = 0;
  int32_t rank = 0;
  std::array<uint8_t, TensorDesc::kMaxRank> extents{};
  std::array<bool, TensorDesc::kMaxRank> broadcast{};
  std::array<char, 40> characters{};  // without "|1"
  size_t length = 0;

  constexpr Shape() = default;
  constexpr Shape(const char* written) : Shape(0, written) {}  // NOLINT: a shape is its text
  constexpr Shape(int of, const char* written) : forms(of) {
    std::string_view rest(written);
    rest = rest.substr(1, rest.size() - 2);
    write("[");
    for (bool last = false; !last; ++rank) {
      const size_t end = rest.find(", ");
      last = end == std::string_view::npos;
      std::string_view name = rest.substr(0, end);
      broadcast[static_cast<size_t>(rank)] = name.ends_with("|1");
      if (name.ends_with("|1")) name.remove_suffix(2);
      extents[static_cast<size_t>(rank)] = extent_index(name);
      write(rank == 0 ? "" : ", ");
      write(name);
      if (!last) rest.remove_prefix(end + 2);
    }
    write("]");
  }
  constexpr std::string_view text() const { return {characters.data(), length}; }
  std::string written() const;  // with "|1"

 private:
  constexpr void write(std::string_view more) {
    for (const char one : more) characters[length++] = one;
  }
};

// The first shape that fits the forms of a call counts. The next one of equal forms is for tensors of its rank.
struct Shapes {
  std::array<Shape, 4> all{};

  constexpr Shapes(std::initializer_list<Shape> shapes) {
    size_t count = 0;
    for (const Shape& shape : shapes) all[count++] = shape;
  }
};

// A set of types.
class DTypes {
 public:
  constexpr DTypes(std::initializer_list<DType> all) {
    for (const DType one : all) bits_ |= bit(one);
  }
  constexpr bool has(DType one) const { return (bits_ & bit(one)) != 0; }
  constexpr bool operator==(const DTypes&) const = default;
  std::string text() const;  // "f32, f16 or bf16"

 private:
  static constexpr uint32_t bit(DType one) { return uint32_t{1} << static_cast<int>(one); }
  uint32_t bits_ = 0;
};

struct Line {
  std::string_view name;
  size_t c_tensor = 0;  // offsets in C's structs: of the tensor, and of the pointer to its data
  size_t c_data = 0;
  bool is_optional = false;
  bool is_output = false;
  DTypes types;
  Shapes shapes;
  std::string_view may_be =
      {};  // inputs that an output may be, with the same layout: "lse_a lse_b"
  std::string_view meaning = {};  // of an input that a caller may give by name: the command's help

  // The shapes of calls without special forms: "[B|1, Hq] or [Hq]".
  std::string written_shapes() const;
};

// The structs of a call, by its problem: Arguments, and C's structs.
template <class What>
struct StructsOf;

template <class What>
struct Operand : Line {
  using Arguments = typename StructsOf<What>::Arguments;
  using CProblem = typename StructsOf<What>::CProblem;
  using CArguments = typename StructsOf<What>::CArguments;

  const TensorDesc* (*find)(const What&);  // null: the call has none
  void (*set)(What&, const TensorDesc&);
  const void* (*data)(const Arguments&);
  void (*bind)(Arguments&, void*);
  const flashcore_tensor& (*of_c)(const CProblem&);
  void (*copy_data)(const CArguments&, Arguments&);

  constexpr Operand means(std::string_view text) const {
    Operand one = *this;
    one.meaning = text;
    return one;
  }
};

// Makes the lines of a call from the members of its structs. Pointers say which operands are outputs, and the types of
// those that are not to void.
template <class What, auto kTensor, auto kData, auto kOfC, auto kDataOfC>
struct Members {
  using Of = Operand<What>;
  using Tensor = std::remove_reference_t<decltype(What().*kTensor)>;
  using Pointer = std::remove_reference_t<decltype(typename Of::Arguments().*kData)>;
  using Element = std::remove_pointer_t<Pointer>;
  static constexpr bool kOptional = !std::is_same_v<Tensor, TensorDesc>;

  static const TensorDesc* find(const What& what) {
    if constexpr (kOptional)
      return what.*kTensor ? &*(what.*kTensor) : nullptr;
    else
      return &(what.*kTensor);
  }
  static constexpr Of line(std::string_view name, size_t c_tensor, size_t c_data, DTypes types,
                           Shapes shapes, std::string_view may_be = {}) {
    return {
        {name, c_tensor, c_data, kOptional, !std::is_const_v<Element>, types, shapes, may_be},
        find,
        [](What& what, const TensorDesc& tensor) { what.*kTensor = tensor; },
        [](const typename Of::Arguments& args) -> const void* { return args.*kData; },
        [](typename Of::Arguments& args, void* data) { args.*kData = static_cast<Pointer>(data); },
        [](const typename Of::CProblem& c) -> const flashcore_tensor& { return c.*kOfC; },
        [](const typename Of::CArguments& c, typename Of::Arguments& args) {
          args.*kData = c.*kDataOfC;
        }};
  }
  static constexpr Of line(std::string_view name, size_t c_tensor, size_t c_data, Shapes shapes,
                           std::string_view may_be = {}) {
    using Plain = std::remove_const_t<Element>;
    constexpr DType kType = std::is_same_v<Plain, float>     ? DType::f32
                            : std::is_same_v<Plain, int32_t> ? DType::i32
                                                             : DType::i64;
    return line(name, c_tensor, c_data, {kType}, shapes, may_be);
  }
};

// Checks a tensor by its line: its type, or its shape, whose extents must be those known or become known.
Status check_type(const Line& line, const TensorDesc& tensor);
Status check_shape(const Line& line, const TensorDesc& tensor, int forms, Extents& extents);

}  // namespace flashcore
