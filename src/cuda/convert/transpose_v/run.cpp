#include "cuda/convert/transpose_v/run.hpp"

#include <cstdint>
#include <string>

#include "cuda/convert/transpose_v/params.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "cuda/tile/v_tile.hpp"
#include "kernel/device_code.hpp"
#include "problem/row_strides.hpp"
#include "problem/sizes.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert::transpose_v {
namespace {

constexpr const char *kName = "transpose_v", *kFamily = "convert";
constexpr int kColumns = tile::VTile::kColumns, kDims = tile::VTile::kDims;
static_assert(kColumns == kColumnBlock);
constexpr int64_t kMostBlocks = INT32_MAX;  // of a launch

bool in_chunks(const TransposeProblem& p, const RowStrides& stride, const void* data, int64_t rows,
               int64_t width) {
  return width % tile::VTile::kChunk == 0 && host::is_aligned(data) &&
         misaligned_rows("", stride, DType::f8e4m3, p.batch, p.heads, rows).empty();
}

}  // namespace

Status run(const TransposeProblem& p, const void* v, void* v_out, const DeviceInfo& device,
           Stream stream) {
  const std::string refusal = refuse_code(build::targets::convert, device.compute_capability);
  if (!refusal.empty()) return unsupported("device: {}", refusal);
  if (p.batch == 0 || p.heads == 0 || p.columns == 0 || p.head_dim == 0) return {};
  const int64_t column_blocks = p.columns / kColumns, dim_blocks = (p.head_dim + kDims - 1) / kDims;
  const int64_t blocks = product_of({p.batch, p.heads, column_blocks, dim_blocks});
  if (blocks > kMostBlocks) {
    return unsupported("v_out: has {} blocks of {} x {} elements, wanted at most {} on a GPU",
                       blocks, kDims, kColumns, kMostBlocks);
  }
  const Params params{.v = static_cast<const uint8_t*>(v),
                      .out = static_cast<uint8_t*>(v_out),
                      .v_at = host::row_stride(p.v),
                      .out_at = host::row_stride(p.v_out),
                      .heads = static_cast<int>(p.heads),
                      .rows = static_cast<int>(p.rows),
                      .head_dim = static_cast<int>(p.head_dim),
                      .column_blocks = static_cast<uint32_t>(column_blocks),
                      .dim_blocks = static_cast<uint32_t>(dim_blocks),
                      .blocks = static_cast<uint32_t>(blocks),
                      .in_chunks = in_chunks(p, p.v, v, p.rows, p.head_dim),
                      .out_chunks = in_chunks(p, p.v_out, v_out, p.head_dim, p.columns)};
  const launch::Launcher launcher(kName, device.device.index, stream);
  FLASHCORE_RETURN_IF_ERROR(launcher.status());
  return launcher.launch(kFamily, "transpose", {.blocks = dim3(params.blocks)}, params);
}

}  // namespace flashcore::cuda::convert::transpose_v
