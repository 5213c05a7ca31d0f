// Finds the tensors of a problem in .safetensors and .npy files, and reads them into host memory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/io/byte_source.hpp"
#include "bench/io/tensor.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// The inputs that files can give, by their public names, q first.
const std::vector<std::string>& input_names();

// A tensor of an open file.
struct TensorSource {
  std::shared_ptr<io::ByteSource> file;
  io::TensorInfo info;
  DType dtype = DType::f32;  // element type in memory
};
using TensorSources = std::map<std::string, TensorSource, std::less<>>;

struct InputFiles {
  std::string file;                           // .safetensors, or empty
  std::map<std::string, std::string> chosen;  // tensor to a name in `file`, or a .npy file
  std::vector<std::string> without;           // tensors of `file` to ignore
  std::vector<std::string> more = {};         // tensors to find in addition to input_names()
  std::optional<DType> raw;                   // the type of bytes without a type
};

// Opens the files and finds every tensor of the problem in them. q, k and v must be there.
Result<TensorSources> find_inputs(const InputFiles& files);

// All paths: nothing may be written there.
std::vector<std::string> paths_of(const TensorSources& sources);

// Reads one tensor into host memory in the form of `desc`, and converts elements if types differ.
Result<HostTensor> read_tensor(const TensorSource& source, const TensorDesc& desc);

}  // namespace flashcore::bench
