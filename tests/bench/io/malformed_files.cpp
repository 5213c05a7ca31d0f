#include "tests/bench/io/malformed_files.hpp"

#include <cstdint>
#include <cstring>

namespace flashcore::tests {
namespace {

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

std::string repeat(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

std::string safetensors_file(const std::string& header, const std::string& data) {
  return little_endian(uint64_t{header.size()}) + header + data;
}

std::string npy_file(const std::string& dictionary, const std::string& data) {
  return std::string("\x93NUMPY\x01\x00", 8) +
         little_endian(static_cast<uint16_t>(dictionary.size())) + dictionary + data;
}

std::vector<FileCase> safetensors_cases() {
  const std::string eight(8, '\x3c');
  const auto with = [](const std::string& header, const std::string& data) {
    return safetensors_file("{" + header + "}", data);
  };
  return {
      {"one tensor", with(tensor("q", "F32", "[2]", "[0,8]"), eight), ""},
      {"no tensors", with("", ""), ""},
      {"a scalar", with(tensor("q", "F64", "[]", "[0,8]"), eight), ""},
      {"an empty tensor", with(tensor("q", "F16", "[0,9]", "[0,0]"), ""), ""},
      {"every type",
       with(tensor("a", "F16", "[2]", "[0,4]") + "," + tensor("b", "BF16", "[2]", "[4,8]") + "," +
                tensor("c", "F8_E4M3", "[4]", "[8,12]") + "," +
                tensor("d", "F8_E5M2", "[4]", "[12,16]") + "," +
                tensor("e", "BOOL", "[8]", "[16,24]") + "," + tensor("f", "I32", "[2]", "[24,32]"),
            repeat(eight, 4)),
       ""},
      {"a type that is not read", with(tensor("q", "C128", "[1]", "[0,8]"), eight), ""},
      {"metadata and spaces",
       with("\"__metadata__\":{\"format\":\"pt\"}," + tensor("q", "I64", "[1]", "[0,8]") + "   ",
            eight),
       ""},
      {"in another order than the data",
       with(tensor("b", "F32", "[1]", "[4,8]") + "," + tensor("a", "F32", "[1]", "[0,4]"), eight),
       ""},

      {"empty file", "", "has 0 bytes"},
      {"shorter than its length field", "1234567", "has 7 bytes"},
      {"header length past the end", little_endian(uint64_t{100}) + "{}", "header length is 100"},
      {"header length of 2^64 - 1", little_endian(~uint64_t{0}) + "{}", "header length is"},
      {"header length past the limit", little_endian(uint64_t{100'000'001}) + "{}",
       "header length is 100000001"},
      {"header of no bytes", little_endian(uint64_t{0}), "is not JSON"},
      {"not JSON", safetensors_file("hello", ""), "is not JSON at byte"},
      {"cut JSON", safetensors_file("{\"q\":{\"dtype\":", ""), "is not JSON"},
      {"two documents", safetensors_file("{}{}", ""), "is not JSON"},
      {"bad UTF-8", safetensors_file("{\"\xff\xfe\":1}", ""), "is not JSON"},
      {"an array", safetensors_file("[]", ""), "is an array, wanted a JSON object"},
      {"a number", safetensors_file("7", ""), "is the number 7"},
      {"deep nesting", safetensors_file(repeat("[", 100'000), ""), "is an array"},
      {"deep nesting in a tensor",
       with("\"q\":{\"dtype\":\"F32\",\"shape\":" + repeat("[", 100'000), ""),
       "tensor 'q' has an array in its shape"},
      {"deep objects", with("\"q\":" + repeat("{\"a\":", 100'000), ""), "has field 'a'"},
      {"a tensor that is a number", with("\"q\":1", ""), "has the number 1 under 'q'"},
      {"a name twice",
       with(tensor("q", "F32", "[1]", "[0,4]") + "," + tensor("q", "F32", "[1]", "[4,8]"), eight),
       "has 'q' twice"},
      {"a field twice",
       with("\"q\":{\"dtype\":\"F32\",\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,4]}",
            eight),
       "has 'dtype' twice"},
      {"a field too many",
       with("\"q\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}", eight),
       "has field 'x'"},
      {"a field too few", with("\"q\":{\"dtype\":\"F32\",\"shape\":[2]}", eight), "has 2 of the"},
      {"a dtype that is a number",
       with("\"q\":{\"dtype\":5,\"shape\":[2],\"data_offsets\":[0,8]}", eight),
       "has the number 5 under 'dtype'"},
      {"a shape that is a string",
       with("\"q\":{\"dtype\":\"F32\",\"shape\":\"2\",\"data_offsets\":[0,8]}", eight),
       "has a string under 'shape'"},
      {"metadata that is not text", with("\"__metadata__\":{\"a\":1}", ""), "__metadata__ has"},
      {"a negative extent", with(tensor("q", "F32", "[-2]", "[0,8]"), eight), "the number -2"},
      {"a fractional extent", with(tensor("q", "F32", "[2.0]", "[0,8]"), eight), "the number 2.0"},
      {"an extent of 2^63", with(tensor("q", "F32", "[9223372036854775808]", "[0,8]"), eight),
       "wanted less than 2^63"},
      {"an extent past 64 bits", with(tensor("q", "F32", "[99999999999999999999]", "[0,8]"), eight),
       "in its shape"},
      {"a shape whose product wraps to its size",
       with(tensor("q", "F32", "[4294967297,4294967296,4]", "[0,8]"), eight), "has shape"},
      {"a shape whose bytes wrap to its size",
       with(tensor("q", "F32", "[4611686018427387906]", "[0,8]"), eight), "has 8 bytes"},
      {"zero times huge",
       with(tensor("q", "F32", "[9223372036854775807,9223372036854775807,0]", "[0,0]"), ""), ""},
      {"offsets past the end", with(tensor("q", "F32", "[4]", "[0,16]"), eight),
       "has data_offsets [0, 16]"},
      {"offsets of 2^64 - 1",
       with(tensor("q", "F32", "[2]", "[18446744073709551607,18446744073709551615]"), eight),
       "has data_offsets"},
      {"offsets the wrong way round", with(tensor("q", "F32", "[2]", "[8,0]"), eight),
       "has data_offsets [8, 0]"},
      {"one offset", with(tensor("q", "F32", "[2]", "[8]"), eight), "has 1 data_offsets"},
      {"three offsets", with(tensor("q", "F32", "[2]", "[0,8,8]"), eight), "in its data_offsets"},
      {"a size that is not the shape's", with(tensor("q", "F32", "[3]", "[0,8]"), eight),
       "has 8 bytes, wanted those of 3 elements of F32"},
      {"overlap",
       with(tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "F32", "[1]", "[4,8]"), eight),
       "tensor 'b' begins at byte 4 of the data, wanted 8"},
      {"the same bytes twice",
       with(tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "F32", "[2]", "[0,8]"), eight),
       "begins at byte 0"},
      {"a hole",
       with(tensor("a", "F32", "[1]", "[0,4]") + "," + tensor("b", "F32", "[1]", "[8,12]"),
            repeat(eight, 2)),
       "begins at byte 8 of the data, wanted 4"},
      {"bytes after the last tensor", with(tensor("q", "F32", "[1]", "[0,4]"), eight),
       "has 4 bytes after its last tensor"},
      {"truncated data", with(tensor("q", "F32", "[4]", "[0,16]"), eight), "within 8 bytes"},
  };
}

std::vector<FileCase> npy_cases() {
  const std::string eight(8, '\x3c');
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  const auto with = [](const std::string& descr, const std::string& order, const std::string& shape,
                       const std::string& data) {
    return npy_file(
        "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }  \n",
        data);
  };
  const std::string mark("\x93NUMPY", 6);
  return {
      {"f4", npy_file(good, eight), ""},
      {"version 2",
       mark + std::string("\x02\x00", 2) + little_endian(static_cast<uint32_t>(good.size())) +
           good + eight,
       ""},
      {"f2", with("'<f2'", "False", "(2, 2)", eight), ""},
      {"f8", with("'<f8'", "False", "()", eight), ""},
      {"i8", with("'<i8'", "False", "(1,)", eight), ""},
      {"bool", with("'|b1'", "False", "(8,)", eight), ""},
      {"raw 2 bytes", with("'|V2'", "False", "(4,)", eight), ""},
      {"empty", with("'<f4'", "False", "(0, 5)", ""), ""},
      {"Fortran order of a vector", with("'<f4'", "True", "(1, 2, 1)", eight), ""},
      {"double quotes, another order",
       npy_file("{\"shape\": (2,), \"fortran_order\": False, \"descr\": \"<f4\"}", eight), ""},

      {"empty file", "", "has 0 bytes"},
      {"only the mark", mark, "has 6 bytes"},
      {"no header length", mark + std::string("\x01\x00", 2), "wanted 2 more"},
      {"another file", "PK\x03\x04" + repeat(eight, 4), "does not begin with NumPy's magic bytes"},
      {"version 9", mark + std::string("\x09\x00", 2) + eight, "version is 9"},
      {"version 0", mark + std::string("\x00\x00", 2) + eight, "version is 0"},
      {"header length past the end",
       mark + std::string("\x01\x00", 2) + little_endian(uint16_t{500}) + good, "header length"},
      {"header length of 4 GiB",
       mark + std::string("\x02\x00", 2) + little_endian(~uint32_t{0}) + good, "header length"},
      {"big-endian", with("'>f4'", "False", "(2,)", eight), "'>f4' (big-endian)"},
      {"big-endian lengths", with("'>i8'", "False", "(1,)", eight), "(big-endian)"},
      {"Fortran order", with("'<f4'", "True", "(1, 2, 1, 1)", eight), ""},
      {"Fortran order of a matrix", with("'<f2'", "True", "(2, 2)", eight), "is in Fortran order"},
      {"Python objects", with("'|O'", "False", "(1,)", eight), "(Python objects)"},
      {"complex", with("'<c8'", "False", "(1,)", eight), "descr is '<c8'"},
      {"text", with("'<U2'", "False", "(1,)", eight), "descr is '<U2'"},
      {"an empty descr", with("''", "False", "(2,)", eight), "descr is ''"},
      {"a structured descr", with("[('a', '<f4')]", "False", "(2,)", eight), "structured array"},
      {"an escape", with("'<f\\x34'", "False", "(2,)", eight), "descr that is not a string"},
      {"a size that is not the shape's", with("'<f4'", "False", "(3,)", eight),
       "has 8 bytes of data, wanted 12"},
      {"bytes after the array", with("'<f4'", "False", "(1,)", eight), "has 8 bytes of data"},
      {"truncated data", npy_file(good, "1234567"), "has 7 bytes of data, wanted 8"},
      {"a negative extent", with("'<f4'", "False", "(-2,)", eight), "malformed shape"},
      {"an extent past 63 bits", with("'<f4'", "False", "(9223372036854775808,)", eight),
       "malformed shape"},
      {"a product that wraps to its size",
       with("'<f4'", "False", "(4294967297, 4294967296, 4)", eight), "wanted fewer than 2^63"},
      {"bytes that wrap to its size", with("'<f4'", "False", "(4611686018427387906,)", eight),
       "wanted fewer than 2^63"},
      {"a shape that is a list", with("'<f4'", "False", "[2]", eight), "malformed shape"},
      {"a fractional extent", with("'<f4'", "False", "(2.0,)", eight), "malformed shape"},
      {"an order that is neither", with("'<f4'", "1", "(2,)", eight), "fortran_order"},
      {"no dictionary", npy_file("hello", eight), "is not a dictionary"},
      {"an empty dictionary", npy_file("{}", eight), "lacks a key"},
      {"a cut dictionary", npy_file("{'descr': '<f4', ", eight), "is malformed"},
      {"a cut string", npy_file("{'descr", eight), "is malformed"},
      {"a cut shape", npy_file("{'shape': (2", eight), "malformed shape"},
      {"a key twice", npy_file("{'descr': '<f4', 'descr': '<f4'}", eight), "has key 'descr' twice"},
      {"another key", npy_file("{'weights': 1}", eight), "has key 'weights'"},
      {"text after the dictionary",
       npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} import os", eight),
       "goes on after its dictionary"},
      {"deep nesting", npy_file("{'shape': " + repeat("(", 60'000), eight), "malformed shape"},
  };
}

}  // namespace flashcore::tests
