#include "cuda/convert/merge/run.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda/convert/merge/params.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/device_code.hpp"
#include "problem/row_strides.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert::merge {
namespace {

constexpr const char *kName = "merge", *kFamily = "convert";
constexpr int64_t kChunkBytes = 16;
constexpr int64_t kMostColumns = 1 << 24, kMostRows = INT32_MAX;  // numbers of 32 bits
constexpr int64_t kBlockRows = kThreads / 32 * kWarpRows, kMostBlocks = 1 << 30;

// Elements that a thread takes at once: 16 bytes, where rows are whole aligned chunks of so many.
int chunk_of(const MergeProblem& p, const MergeArguments& args) {
  const auto elements = static_cast<int>(kChunkBytes / static_cast<int64_t>(size_of(p.dtype)));
  const auto aligned = [&](const RowStrides& stride, DType dtype, const void* data) {
    return misaligned_rows("", stride, dtype, p.batch, p.heads, p.rows).empty() &&
           host::is_aligned(data);
  };
  const bool whole = p.head_dim % elements == 0 && aligned(p.o_a, p.dtype, args.o_a) &&
                     aligned(p.o_b, p.dtype, args.o_b) && aligned(p.o, p.o_dtype, args.o);
  return whole ? elements : 1;
}

}  // namespace

Status run(const MergeProblem& p, const MergeArguments& args, const DeviceInfo& device,
           Stream stream) {
  const std::string refusal = refuse_code(build::targets::convert, device.compute_capability);
  if (!refusal.empty()) return unsupported("device: {}", refusal);
  if (p.batch == 0 || p.heads == 0 || p.rows == 0) return {};
  if (p.head_dim > kMostColumns) {
    return unsupported("o_a: has rows of {} elements, wanted at most {} on a GPU", p.head_dim,
                       kMostColumns);
  }
  if (p.rows > kMostRows || p.heads > kMostRows) {
    return unsupported("o_a: has {} heads of {} rows, wanted at most {} of each on a GPU", p.heads,
                       p.rows, kMostRows);
  }
  const int chunk = chunk_of(p, args);
  const auto divisor = static_cast<uint32_t>(p.head_dim == 0 ? 1 : p.head_dim / chunk);
  const Params params{.o_a = args.o_a,
                      .o_b = args.o_b,
                      .lse_a = args.lse_a,
                      .lse_b = args.lse_b,
                      .o = args.o,
                      .lse = p.has_lse ? args.lse : nullptr,
                      .o_a_at = host::row_stride(p.o_a),
                      .o_b_at = host::row_stride(p.o_b),
                      .lse_a_at = host::row_stride(p.lse_a),
                      .lse_b_at = host::row_stride(p.lse_b),
                      .o_at = host::row_stride(p.o),
                      .lse_at = host::row_stride(p.lse),
                      .type = host::element_type(p.dtype),
                      .o_type = host::element_type(p.o_dtype),
                      .all_rows = p.batch * p.heads * p.rows,
                      .heads = static_cast<int>(p.heads),
                      .rows = static_cast<int>(p.rows),
                      .width = static_cast<int>(p.head_dim),
                      .per_chunk = chunk,
                      .by_chunks = attention::divisor(divisor)};
  const int64_t blocks = std::min((params.all_rows + kBlockRows - 1) / kBlockRows, kMostBlocks);
  const launch::Launcher launcher(kName, device.device.index, stream);
  FLASHCORE_RETURN_IF_ERROR(launcher.status());
  return launcher.launch(kFamily, "merge", {.blocks = dim3(static_cast<unsigned int>(blocks))},
                         params);
}

}  // namespace flashcore::cuda::convert::merge
