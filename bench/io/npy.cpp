#include "bench/io/npy.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "bench/io/atomic_file.hpp"
#include "problem/status.hpp"

namespace flashcore::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kPreamble = 8;  // magic, major and minor version
constexpr uint64_t kLargestDescription = uint64_t{1} << 20;
constexpr size_t kAlignment = 64;

struct Descr {
  std::string_view text;  // without the byte order
  StoredType type;
};
constexpr std::array<Descr, 11> kDescrs = {{{"f4", StoredType::f32},
                                            {"f2", StoredType::f16},
                                            {"f8", StoredType::f64},
                                            {"b1", StoredType::boolean},
                                            {"i4", StoredType::i32},
                                            {"i8", StoredType::i64},
                                            {"V2", StoredType::raw16},
                                            {"V1", StoredType::raw8},
                                            {"f1", StoredType::raw8},
                                            {"u1", StoredType::raw8},
                                            {"u2", StoredType::raw16}}};

// Reads the header's dictionary, and no other Python.
class DictionaryReader {
 public:
  explicit DictionaryReader(std::string_view text) : rest_(text) {}

  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;

  // Returns what is wrong, as "..., wanted ...", or "".
  std::string read() {
    if (!take('{')) return "is not a dictionary, wanted {'descr': ..., ...}";
    bool has_descr = false, has_order = false, has_shape = false;
    while (!take('}')) {
      std::string key;
      if (!read_string(key) || !take(':')) return "is malformed, wanted 'key': value";
      bool* const seen = key == "descr"           ? &has_descr
                         : key == "fortran_order" ? &has_order
                         : key == "shape"         ? &has_shape
                                                  : nullptr;
      if (seen == nullptr || *seen) {
        return fmt::format("has key '{}'{}, wanted descr, fortran_order and shape", key,
                           seen == nullptr ? "" : " twice");
      }
      *seen = true;
      if (std::string wrong = read_value(key); !wrong.empty()) return wrong;
      if (take(',')) continue;
      if (!take('}')) return "is malformed, wanted ',' or '}' after a value";
      break;
    }
    if (!(has_descr && has_order && has_shape)) {
      return "lacks a key, wanted descr, fortran_order and shape";
    }
    skip_space();
    return rest_.empty() ? "" : "goes on after its dictionary, wanted only spaces";
  }

 private:
  std::string read_value(std::string_view key) {
    if (key == "descr") {
      if (read_string(descr)) return "";
      return "has a descr that is not a string (a structured array), wanted one such as '<f4'";
    }
    if (key == "fortran_order") {
      fortran_order = take_word("True");
      if (fortran_order || take_word("False")) return "";
      return "has a fortran_order that is neither True nor False, wanted one of them";
    }
    if (read_shape()) return "";
    return "has a malformed shape, wanted a tuple of whole numbers below 2^63";
  }

  bool read_shape() {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_space();
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (error != std::errc() || extent < 0) return false;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      shape.push_back(extent);
      if (take(',')) continue;
      return take(')');
    }
    return true;
  }

  // Escapes are not supported: no key and no simple descr has any.
  bool read_string(std::string& out) {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return false;
    out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return out.find('\\') == std::string::npos;
  }

  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  void skip_space() {
    const size_t first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
  }

  std::string_view rest_;
};

// Empty for types that .npy does not have, and for i64, which is narrowed when read.
std::string_view written_descr(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::f64:
      return "<f8";
    case DType::boolean:
      return "|b1";
    case DType::i32:
      return "<i4";
    case DType::bf16:
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::i64:
      break;
  }
  return "";
}

Result<StoredType> stored_type(const ByteSource& source, std::string_view descr) {
  std::string_view text = descr;
  const char order = text.empty() ? '|' : text[0];
  if (order == '<' || order == '>' || order == '|' || order == '=') text.remove_prefix(1);
  const auto* row = std::find_if(kDescrs.begin(), kDescrs.end(),
                                 [text](const Descr& d) { return d.text == text; });
  if (row == kDescrs.end()) {
    return invalid("{}: descr is '{}'{}, wanted f4, f2, f8, b1, i4 or i8", source.name(), descr,
                   text.starts_with('O') ? " (Python objects)" : "");
  }
  if (order == '>' && io::size_of(row->type) > 1) {
    return invalid("{}: descr is '{}' (big-endian), wanted little-endian '<{}'", source.name(),
                   descr, text);
  }
  return row->type;
}

// The header's text, and the offset of the data.
Result<std::pair<std::string, uint64_t>> read_header(const ByteSource& source) {
  std::array<char, kPreamble> preamble{};
  if (source.size() < kPreamble) {
    return invalid("{}: has {} bytes, wanted a .npy file of more", source.name(), source.size());
  }
  FLASHCORE_RETURN_IF_ERROR(source.read(0, std::as_writable_bytes(std::span(preamble))));
  if (std::string_view(preamble.data(), kMagic.size()) != kMagic) {
    return invalid("{}: does not begin with NumPy's magic bytes, wanted a .npy file",
                   source.name());
  }
  const int major = static_cast<unsigned char>(preamble[6]);
  if (major < 1 || major > 3) {
    return invalid("{}: .npy version is {}, wanted 1, 2 or 3", source.name(), major);
  }
  std::array<std::byte, 4> length_bytes{};
  const size_t length_size = major == 1 ? 2 : 4;
  FLASHCORE_RETURN_IF_ERROR(source.read(kPreamble, std::span(length_bytes).first(length_size)));
  uint32_t length = 0;
  std::memcpy(&length, length_bytes.data(), sizeof(length));
  const uint64_t begin = kPreamble + length_size;
  const uint64_t largest = std::min(source.size() - begin, kLargestDescription);
  if (length > largest) {
    return invalid("{}: header length is {}, wanted at most {}", source.name(), length, largest);
  }
  std::string text(length, '\0');
  FLASHCORE_RETURN_IF_ERROR(source.read(begin, std::as_writable_bytes(std::span(text))));
  return std::pair(std::move(text), begin + length);
}

}  // namespace

Result<TensorInfo> list_npy(const ByteSource& source) {
  const Result<std::pair<std::string, uint64_t>> header = read_header(source);
  if (!header.ok()) return header.status();
  DictionaryReader dictionary(header->first);
  if (const std::string wrong = dictionary.read(); !wrong.empty()) {
    return invalid("{}: header {}", source.name(), wrong);
  }
  const Result<StoredType> type = stored_type(source, dictionary.descr);
  if (!type.ok()) return type.status();

  TensorInfo info;
  info.name = source.name();
  info.type_name = "'" + dictionary.descr + "'";
  info.type = *type;
  info.shape = std::move(dictionary.shape);
  info.offset = header->second;
  const std::optional<uint64_t> count = element_count(info.shape);
  const uint64_t available = source.size() - info.offset;
  if (!count || __builtin_mul_overflow(*count, io::size_of(info.type), &info.bytes)) {
    return invalid("{}: shape is {}, wanted fewer than 2^63 elements", source.name(),
                   to_text(info.shape));
  }
  if (info.bytes != available) {
    return invalid("{}: has {} bytes of data, wanted {} for shape {} of {}", source.name(),
                   available, info.bytes, to_text(info.shape), info.type_name);
  }
  const auto real_dimensions = std::count_if(info.shape.begin(), info.shape.end(),
                                             [](int64_t extent) { return extent > 1; });
  if (dictionary.fortran_order && real_dimensions > 1) {
    return invalid("{}: is in Fortran order, wanted C order (numpy.ascontiguousarray)",
                   source.name());
  }
  return info;
}

Status check_npy(const std::string& path, DType dtype, std::string_view option) {
  if (!written_descr(dtype).empty()) return {};
  return invalid("{}: .npy has no {}, wanted a .safetensors file or {} f32", path, to_string(dtype),
                 option);
}

Status write_npy(const std::string& path, const OutputTensor& tensor) {
  FLASHCORE_RETURN_IF_ERROR(check_npy(path, tensor.dtype));
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 written_descr(tensor.dtype), fmt::join(tensor.shape, ", "),
                                 tensor.shape.size() == 1 ? "," : "");
  // Spaces and a newline, so that the data begins at a multiple of 64 bytes.
  const size_t before = kPreamble + 2;
  text.append((kAlignment - (before + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  const auto length = static_cast<uint16_t>(text.size());

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file.ok()) return file.status();
  std::string head(kMagic);
  head += '\x01';
  head += '\0';
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(head))));
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(&length, 1))));
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  FLASHCORE_RETURN_IF_ERROR(file->write(tensor.data));
  return file->commit();
}

}  // namespace flashcore::io
