// NumPy's .npy format: "\x93NUMPY", a version, a header length, and a header that is a Python
// dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, then one array.
// Specified in NumPy's documentation, numpy.lib.format.
#pragma once

#include <string>
#include <string_view>

#include "bench/io/byte_source.hpp"
#include "bench/io/safetensors.hpp"
#include "bench/io/tensor.hpp"

namespace flashcore::io {

// Returns the file's array. Refuses big-endian numbers, Fortran order, and a size that disagrees.
Result<TensorInfo> list_npy(const ByteSource& source);

// Refuses bf16 and fp8, which .npy does not have; `option` is the option that chose the type.
Status check_npy(const std::string& path, DType dtype, std::string_view option = "--out-dtype");

// Replaces the whole file, or leaves it unchanged.
Status write_npy(const std::string& path, const OutputTensor& tensor);

}  // namespace flashcore::io
