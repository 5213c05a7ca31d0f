#include "bench/io/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/io/atomic_file.hpp"
#include "problem/status.hpp"

static_assert(std::endian::native == std::endian::little, "tensor files are read as they are");

namespace flashcore::io {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit

struct TypeName {
  const char* name;
  StoredType type;
  std::optional<DType> written;  // the type that is written under this name
};
constexpr std::array<TypeName, 9> kTypes = {{{"F32", StoredType::f32, DType::f32},
                                             {"F16", StoredType::f16, DType::f16},
                                             {"BF16", StoredType::bf16, DType::bf16},
                                             {"F8_E4M3", StoredType::f8e4m3, DType::f8e4m3},
                                             {"F8_E5M2", StoredType::f8e5m2, DType::f8e5m2},
                                             {"BOOL", StoredType::boolean, DType::boolean},
                                             {"I32", StoredType::i32, DType::i32},
                                             {"F64", StoredType::f64, DType::f64},
                                             {"I64", StoredType::i64, std::nullopt}}};

StoredType type_from_name(std::string_view name) {
  for (const TypeName& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return StoredType::other;
}

// Accepts exactly the header's grammar while nlohmann's scanner reads it, so that nesting is
// bounded, repeated keys are detected, and no tree is built from hostile text.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorInfo> tensors;
  std::string error;  // the error, as "..., wanted ..."

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + text);
  }
  bool binary(binary_t&) override { return unexpected("bytes"); }

  bool number_integer(number_integer_t value) override {
    return unexpected(fmt::format("the number {}", value));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return fail(fmt::format("tensor '{}' has extent {}, wanted less than 2^63", name(), value));
      }
      tensors.back().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensors.back().offset : tensors.back().bytes) = value;
      return true;
    }
    return unexpected(fmt::format("the number {}", value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || key_ != "dtype") return unexpected("a string");
    tensors.back().type_name = value;
    tensors.back().type = type_from_name(value);
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::before) {
      place_ = Place::header;
      return true;
    }
    if (place_ != Place::header) return unexpected("an object");
    place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
    if (place_ == Place::tensor) {
      tensors.emplace_back().name = key_;
      fields_.clear();
    }
    return true;
  }

  bool key(string_t& value) override {
    std::set<std::string>& seen = place_ == Place::header   ? names_
                                  : place_ == Place::tensor ? fields_
                                                            : metadata_;
    if (!seen.insert(value).second)
      return fail(fmt::format("has '{}' twice, wanted it once", value));
    if (place_ == Place::tensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      return fail(fmt::format("tensor '{}' has field '{}', wanted dtype, shape and data_offsets",
                              name(), value));
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && fields_.size() != 3) {
      return fail(
          fmt::format("tensor '{}' has {} of the fields dtype, shape and data_offsets, "
                      "wanted all three",
                      name(), fields_.size()));
    }
    place_ = place_ == Place::header ? Place::after : Place::header;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") return unexpected("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) {
      return fail(fmt::format("tensor '{}' has {} data_offsets, wanted 2", name(), offsets_));
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(fmt::format("is not JSON at byte {}, wanted a JSON object", position));
  }

 private:
  enum class Place { before, header, metadata, tensor, shape, offsets, after };

  const std::string& name() const { return tensors.back().name; }

  bool fail(std::string what) {
    if (error.empty()) error = std::move(what);
    return false;
  }

  bool unexpected(const std::string& what) {
    switch (place_) {
      case Place::metadata:
        return fail(fmt::format("__metadata__ has {} under '{}', wanted a string", what, key_));
      case Place::tensor:
        return fail(fmt::format("tensor '{}' has {} under '{}', wanted {}", name(), what, key_,
                                key_ == "dtype" ? "a string" : "an array"));
      case Place::shape:
        return fail(
            fmt::format("tensor '{}' has {} in its shape, wanted whole numbers", name(), what));
      case Place::offsets:
        return fail(fmt::format("tensor '{}' has {} in its data_offsets, wanted two whole numbers",
                                name(), what));
      case Place::header:
        return fail(fmt::format("has {} under '{}', wanted an object", what, key_));
      case Place::before:
      case Place::after:
        break;
    }
    return fail(fmt::format("is {}, wanted a JSON object", what));
  }

  Place place_ = Place::before;
  std::string key_;
  int offsets_ = 0;
  std::set<std::string> names_, fields_, metadata_;
};

// Converts offset and bytes, which hold the file's begin and end until here.
Status check_tensor(const ByteSource& source, TensorInfo& tensor, uint64_t data_begin) {
  const uint64_t data_size = source.size() - data_begin;
  const uint64_t begin = tensor.offset;
  const uint64_t end = tensor.bytes;
  if (begin > end || end > data_size) {
    return invalid("{}: tensor '{}' has data_offsets [{}, {}], wanted a range within {} bytes",
                   source.name(), tensor.name, begin, end, data_size);
  }
  tensor.offset = data_begin + begin;
  tensor.bytes = end - begin;
  const std::optional<uint64_t> count = element_count(tensor.shape);
  if (!count) {
    return invalid("{}: tensor '{}' has shape {}, wanted fewer than 2^63 elements", source.name(),
                   tensor.name, to_text(tensor.shape));
  }
  if (tensor.type == StoredType::other) return {};  // refused on use
  uint64_t wanted = 0;
  if (__builtin_mul_overflow(*count, size_of(tensor.type), &wanted) || wanted != tensor.bytes) {
    return invalid("{}: tensor '{}' has {} bytes, wanted those of {} elements of {}", source.name(),
                   tensor.name, tensor.bytes, *count, tensor.type_name);
  }
  return {};
}

Status check_data(const ByteSource& source, std::vector<TensorInfo>& tensors, uint64_t data_begin) {
  for (TensorInfo& tensor : tensors) {
    FLASHCORE_RETURN_IF_ERROR(check_tensor(source, tensor, data_begin));
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  uint64_t covered = data_begin;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != covered) {
      return invalid(
          "{}: tensor '{}' begins at byte {} of the data, wanted {}, the end of the one "
          "before it",
          source.name(), tensor.name, tensor.offset - data_begin, covered - data_begin);
    }
    covered += tensor.bytes;
  }
  if (covered != source.size()) {
    return invalid("{}: has {} bytes after its last tensor, wanted none", source.name(),
                   source.size() - covered);
  }
  return {};
}

}  // namespace

Result<std::vector<TensorInfo>> list_safetensors(const ByteSource& source) {
  std::array<std::byte, kLengthBytes> length_bytes{};
  if (source.size() < kLengthBytes) {
    return invalid("{}: has {} bytes, wanted a .safetensors file of at least {}", source.name(),
                   source.size(), kLengthBytes);
  }
  FLASHCORE_RETURN_IF_ERROR(source.read(0, length_bytes));
  uint64_t length = 0;
  std::memcpy(&length, length_bytes.data(), kLengthBytes);
  const uint64_t largest = std::min(source.size() - kLengthBytes, kLargestHeader);
  if (length > largest) {
    return invalid(
        "{}: is no .safetensors file, or was cut off: header length is {}, wanted at most {}",
        source.name(), length, largest);
  }
  std::string text(length, '\0');
  FLASHCORE_RETURN_IF_ERROR(source.read(kLengthBytes, std::as_writable_bytes(std::span(text))));

  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text, &reader)) {
    return invalid("{}: header {}", source.name(),
                   reader.error.empty() ? "is malformed, wanted JSON" : reader.error);
  }
  FLASHCORE_RETURN_IF_ERROR(check_data(source, reader.tensors, kLengthBytes + length));
  return std::move(reader.tensors);
}

Status write_safetensors(const std::string& path, std::span<const OutputTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const OutputTensor& tensor : tensors) {
    const auto* row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& type) {
      return type.written == tensor.dtype;
    });
    if (row == kTypes.end()) {
      return invalid("{}: cannot hold dtype {} of '{}'", path, to_string(tensor.dtype),
                     tensor.name);
    }
    const uint64_t end = offset + tensor.data.size();
    header[tensor.name] = {
        {"dtype", row->name}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');  // aligns the data
  const uint64_t length = text.size();

  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file.ok()) return file.status();
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(&length, 1))));
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  for (const OutputTensor& tensor : tensors) FLASHCORE_RETURN_IF_ERROR(file->write(tensor.data));
  return file->commit();
}

}  // namespace flashcore::io
