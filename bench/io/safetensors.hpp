// The .safetensors format: 8 bytes of header length (little-endian), a JSON header
// {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {...}},
// then the data that the offsets divide among the tensors.
// Specified at https://github.com/huggingface/safetensors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/byte_source.hpp"
#include "bench/io/tensor.hpp"

namespace flashcore::io {

// Every tensor of the file in the order of the data. Refuses a header that is malformed, repeats a
// name, or whose tensors overlap, leave holes, or disagree with their shape and dtype.
Result<std::vector<TensorInfo>> list_safetensors(const ByteSource& source);

// A tensor to write, row-major.
struct OutputTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Replaces the whole file, or leaves it unchanged.
Status write_safetensors(const std::string& path, std::span<const OutputTensor> tensors);

}  // namespace flashcore::io
