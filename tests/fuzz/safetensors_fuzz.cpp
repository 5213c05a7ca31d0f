// libFuzzer target: any bytes as a .safetensors file.
//   safetensors_fuzz -max_total_time=60 CORPUS_DIRECTORY
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "bench/io/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flashcore;
  const io::MemorySource source("fuzz", std::as_bytes(std::span(data, size)));
  const Result<std::vector<io::TensorInfo>> tensors = io::list_safetensors(source);
  if (!tensors.ok()) {
    if (tensors.status().message().empty()) std::abort();
    return 0;
  }
  uint64_t covered = 0;
  for (const io::TensorInfo& info : *tensors) {
    if (info.offset > size || info.bytes > size - info.offset) std::abort();
    covered += info.bytes;
    const Result<DType> dtype = io::loaded_dtype(source, info);
    if (!dtype.ok()) continue;
    const std::optional<uint64_t> count = io::element_count(info.shape);
    if (!count) std::abort();
    std::vector<std::byte> out(*count * size_of(*dtype));
    const Status status = io::read_elements(source, info, out);
    if (status.code() == StatusCode::internal) std::abort();
  }
  if (covered > size) std::abort();  // no byte belongs to two tensors
  return 0;
}
