// libFuzzer target: any bytes as a .npy file.
//   npy_fuzz -max_total_time=60 CORPUS_DIRECTORY
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "bench/io/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flashcore;
  const io::MemorySource source("fuzz", std::as_bytes(std::span(data, size)));
  const Result<io::TensorInfo> info = io::list_npy(source);
  if (!info.ok()) {
    if (info.status().message().empty()) std::abort();
    return 0;
  }
  if (info->offset > size || info->bytes != size - info->offset) std::abort();
  for (const DType raw : {DType::bf16, DType::f8e4m3}) {
    const Result<DType> dtype = io::loaded_dtype(source, *info, raw);
    if (!dtype.ok()) continue;
    const std::optional<uint64_t> count = io::element_count(info->shape);
    if (!count) std::abort();
    std::vector<std::byte> out(*count * size_of(*dtype));
    const Status status = io::read_elements(source, *info, out);
    if (status.code() == StatusCode::internal) std::abort();
  }
  return 0;
}
