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

// The array of the file. Refuses big-endian numbers, Fortran order, and a size that disagrees.
Result<TensorInfo> list_npy(const ByteSource& source);

// .npy has no bf16 and no fp8: refused; `option` chooses the type.
Status check_npy(const std::string& path, DType dtype, std::string_view option = "--out-dtype");

// Replaces the file as a whole, or leaves it as it was.
Status write_npy(const std::string& path, const OutputTensor& tensor);

}  // namespace flashcore::io
