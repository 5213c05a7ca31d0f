#include "problem/quantize.hpp"

#include <algorithm>

#include "problem/layout.hpp"
#include "problem/lengths.hpp"
#include "problem/operands.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

Status resolve_rows(const Quantize& what, Extents& extents, QuantizeProblem& p) {
  p.packed = what.cu_seqlens.has_value();
  if (!p.packed && what.x.rank == 3) {
    return invalid("cu_seqlens: is missing, wanted it with an x of rank 3");
  }
  const int forms = p.packed ? kPacked : 0;
  FLASHCORE_RETURN_IF_ERROR(check_shapes(what, forms, extents, "x", "scale"));
  FLASHCORE_RETURN_IF_ERROR(check_shapes(what, forms, extents, "cu_seqlens"));
  p.batch = extents["B"];
  p.heads = extents["H"];
  p.head_dim = extents["D"];
  p.total = p.packed ? extents["total"] : 0;
  if (what.max_seqlen < 0 || what.max_seqlen > p.total) {
    return invalid("max_seqlen: is {}, wanted 0 to {}", what.max_seqlen, p.total);
  }
  p.rows = !p.packed ? extents["S"] : what.max_seqlen == 0 ? p.total : what.max_seqlen;
  if (what.scale_block < 0 || what.scale_block > kLargestExtent) {
    return invalid("scale_block: is {}, wanted 0 to {}", what.scale_block, kLargestExtent);
  }
  if (what.scale.rank == 2 && what.scale_block != 0) {
    return invalid("scale_block: is {}, wanted 0 with a scale of rank 2, [B, H]", what.scale_block);
  }
  p.scale_block = what.scale_block == 0 ? std::max<int64_t>(p.rows, 1) : what.scale_block;
  extents.set("blocks", (p.rows + p.scale_block - 1) / p.scale_block);
  return check_shapes(what, forms, extents, "scale", "cu_seqlens");
}

}  // namespace

Result<QuantizeProblem> resolve(const Quantize& what) {
  QuantizeProblem p;
  Extents extents;
  FLASHCORE_RETURN_IF_ERROR(check_types(what));
  FLASHCORE_RETURN_IF_ERROR(resolve_rows(what, extents, p));
  p.dtype = what.x.dtype;
  p.out_dtype = what.x_out.dtype;
  p.x = row_strides(what.x, p.packed);
  p.x_out = row_strides(what.x_out, p.packed);
  p.cu_seqlens = entry_strides(what.cu_seqlens);
  p.seqlens = entry_strides(what.seqlens);
  const TensorDesc& scale = what.scale;
  p.scale_batches = scale.shape[0];
  p.scale_heads = scale.shape[1];
  p.scale_blocks = scale.rank == 3 ? scale.shape[2] : 1;
  p.scale = {.present = true,
             .batch = used_stride(scale, 0),
             .head = used_stride(scale, 1),
             .block = scale.rank == 3 ? used_stride(scale, 2) : 0};
  p.has_mean = what.mean.has_value();
  if (what.mean) p.mean = {used_stride(*what.mean, 0), used_stride(*what.mean, 1), 0};
  return p;
}

Status check_arguments(const Quantize& what, const QuantizeProblem& problem,
                       const QuantizeArguments& args, bool host_reads_lengths) {
  FLASHCORE_RETURN_IF_ERROR(check_memory(what, args));
  if (!host_reads_lengths) return {};
  if (problem.packed) {
    FLASHCORE_RETURN_IF_ERROR(check_cu_seqlens("cu_seqlens", problem.cu_seqlens, args.cu_seqlens,
                                               problem.batch, problem.total, problem.rows));
  }
  return check_lengths_of("seqlens", problem.seqlens, args.seqlens, problem.batch, problem.rows);
}

EntryRows entry_rows(const QuantizeProblem& problem, const QuantizeArguments& args, int64_t b) {
  EntryRows rows{0, problem.rows, problem.rows};
  if (problem.packed) {
    rows.begin = args.cu_seqlens[problem.cu_seqlens.at(b, 0)];
    rows.in_use = rows.all = args.cu_seqlens[problem.cu_seqlens.at(b + 1, 0)] - rows.begin;
  }
  if (problem.seqlens.present) {
    rows.in_use = std::min<int64_t>(rows.in_use, args.seqlens[problem.seqlens.at(b, 0)]);
  }
  return rows;
}

}  // namespace flashcore
