#include "problem/quantize.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "problem/layout.hpp"
#include "problem/lengths.hpp"
#include "problem/memory.hpp"
#include "problem/pointer.hpp"
#include "problem/status.hpp"
#include "problem/strides.hpp"

namespace flashcore {
namespace {

Status check_types(const Quantize& what) {
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("x", what.x));
  FLASHCORE_RETURN_IF_ERROR(check_dtype_value("x_out", what.x_out));
  const DType from = what.x.dtype, to = what.x_out.dtype;
  if (from != DType::f32 && from != DType::f16 && from != DType::bf16) {
    return invalid("x: dtype is {}, wanted f32, f16 or bf16", to_string(from));
  }
  if (to != DType::f8e4m3 && to != DType::f8e5m2) {
    return invalid("x_out: dtype is {}, wanted f8e4m3 or f8e5m2", to_string(to));
  }
  return {};
}

Status resolve_rows(const Quantize& what, QuantizeProblem& p) {
  p.packed = what.cu_seqlens.has_value();
  if (!p.packed && what.x.rank == 3) {
    return invalid("cu_seqlens: is missing, wanted it with an x of rank 3");
  }
  const std::string_view shape = p.packed ? "[total, H, D]" : "[B, H, S, D]";
  FLASHCORE_RETURN_IF_ERROR(check_layout("x", what.x, p.packed ? 3 : 4, shape));
  const auto& extents = what.x.shape;
  p.heads = extents[1];
  p.head_dim = extents[p.packed ? 2 : 3];
  if (p.packed) {
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("x_out", what.x_out, {extents[0], extents[1], extents[2]}, false, shape));
    FLASHCORE_RETURN_IF_ERROR(check_layout("cu_seqlens", *what.cu_seqlens, 1, "[B + 1]"));
    if (what.cu_seqlens->shape[0] < 1) return invalid("cu_seqlens: shape is [0], wanted [B + 1]");
    p.batch = what.cu_seqlens->shape[0] - 1;
    p.total = extents[0];
    p.rows = what.max_seqlen == 0 ? p.total : what.max_seqlen;
  } else {
    FLASHCORE_RETURN_IF_ERROR(check_shape(
        "x_out", what.x_out, {extents[0], extents[1], extents[2], extents[3]}, false, shape));
    p.batch = extents[0];
    p.rows = extents[2];
  }
  if (what.max_seqlen < 0 || what.max_seqlen > p.total) {
    return invalid("max_seqlen: is {}, wanted 0 to {}", what.max_seqlen, p.total);
  }
  FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows("x", what.x));
  FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows("x_out", what.x_out));
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("x_out", what.x_out));
  p.x = row_strides(what.x, p.packed);
  p.x_out = row_strides(what.x_out, p.packed);
  FLASHCORE_RETURN_IF_ERROR(
      resolve_length_vector("cu_seqlens", what.cu_seqlens, p.batch + 1, "[B + 1]", p.cu_seqlens));
  return resolve_length_vector("seqlens", what.seqlens, p.batch, "[B]", p.seqlens);
}

Status resolve_scale(const Quantize& what, QuantizeProblem& p) {
  const TensorDesc& scale = what.scale;
  FLASHCORE_RETURN_IF_ERROR(check_dtype("scale", scale, DType::f32));
  if (what.scale_block < 0 || what.scale_block > kLargestExtent) {
    return invalid("scale_block: is {}, wanted 0 to {}", what.scale_block, kLargestExtent);
  }
  p.scale_block = what.scale_block == 0 ? std::max<int64_t>(p.rows, 1) : what.scale_block;
  if (scale.rank == 2) {
    if (what.scale_block != 0) {
      return invalid("scale_block: is {}, wanted 0 with a scale of rank 2, [B, H]",
                     what.scale_block);
    }
    FLASHCORE_RETURN_IF_ERROR(check_shape("scale", scale, {p.batch, p.heads}, true, "[B, H]"));
    p.scale_blocks = 1;
  } else {
    const int64_t blocks = (p.rows + p.scale_block - 1) / p.scale_block;
    FLASHCORE_RETURN_IF_ERROR(
        check_layout("scale", scale, 3, "[B, H, blocks] (or rank 2 for [B, H])"));
    FLASHCORE_RETURN_IF_ERROR(
        check_shape("scale", scale, {p.batch, p.heads, blocks}, true, "[B, H, blocks]"));
    p.scale_blocks = scale.shape[2];
  }
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("scale", scale));
  p.scale_batches = scale.shape[0];
  p.scale_heads = scale.shape[1];
  p.scale = {.present = true,
             .batch = used_stride(scale, 0),
             .head = used_stride(scale, 1),
             .block = scale.rank == 3 ? used_stride(scale, 2) : 0};
  return {};
}

Status resolve_mean(const Quantize& what, QuantizeProblem& p) {
  if (!what.mean) return {};
  FLASHCORE_RETURN_IF_ERROR(check_dtype("mean", *what.mean, DType::f32));
  FLASHCORE_RETURN_IF_ERROR(
      check_shape("mean", *what.mean, {p.batch, p.heads, p.head_dim}, false, "[B, H, D]"));
  FLASHCORE_RETURN_IF_ERROR(check_contiguous_rows("mean", *what.mean));
  FLASHCORE_RETURN_IF_ERROR(check_no_overlap("mean", *what.mean));
  p.has_mean = true;
  p.mean = {used_stride(*what.mean, 0), used_stride(*what.mean, 1), 0};
  return {};
}

Status check_pointers(const QuantizeProblem& p, const QuantizeArguments& args) {
  const bool has_rows = p.heads > 0 && (p.packed ? p.total > 0 : p.batch > 0 && p.rows > 0);
  const bool has_elements = has_rows && p.head_dim > 0;
  const bool has_means = p.batch > 0 && p.heads > 0 && p.head_dim > 0;
  for (const auto& [name, pointer, dtype, needed] :
       {std::tuple{"x", args.x, p.dtype, has_elements},
        {"x_out", static_cast<const void*>(args.x_out), p.out_dtype, has_elements},
        {"scale", static_cast<const void*>(args.scale), DType::f32, p.scales() > 0},
        {"mean", p.has_mean ? static_cast<const void*>(args.mean) : nullptr, DType::f32,
         p.has_mean && has_means},
        {"cu_seqlens", p.packed ? static_cast<const void*>(args.cu_seqlens) : nullptr, DType::i32,
         p.packed},
        {"seqlens", p.seqlens.present ? static_cast<const void*>(args.seqlens) : nullptr,
         DType::i32, p.seqlens.present && p.batch > 0}}) {
    FLASHCORE_RETURN_IF_ERROR(check_pointer(name, pointer, dtype, needed));
  }
  return {};
}

Status check_all_apart(const Quantize& what, const QuantizeArguments& args) {
  std::vector<NamedMemory> tensors;
  const auto add = [&](const char* name, const std::optional<TensorDesc>& tensor,
                       const void* data) {
    if (tensor) tensors.push_back({name, data, footprint(*tensor, data)});
  };
  add("x_out", what.x_out, args.x_out);
  add("scale", what.scale, args.scale);
  add("mean", what.mean, args.mean);
  const size_t outputs = tensors.size();
  add("x", what.x, args.x);
  add("cu_seqlens", what.cu_seqlens, args.cu_seqlens);
  add("seqlens", what.seqlens, args.seqlens);
  for (size_t n = 0; n < outputs; ++n) {
    FLASHCORE_RETURN_IF_ERROR(check_apart(tensors[n], std::span(tensors).subspan(n + 1)));
  }
  return {};
}

}  // namespace

Result<QuantizeProblem> resolve(const Quantize& what) {
  QuantizeProblem p;
  FLASHCORE_RETURN_IF_ERROR(check_types(what));
  FLASHCORE_RETURN_IF_ERROR(resolve_rows(what, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_scale(what, p));
  FLASHCORE_RETURN_IF_ERROR(resolve_mean(what, p));
  p.dtype = what.x.dtype;
  p.out_dtype = what.x_out.dtype;
  return p;
}

Status check_arguments(const Quantize& what, const QuantizeProblem& problem,
                       const QuantizeArguments& args, bool host_reads_lengths) {
  FLASHCORE_RETURN_IF_ERROR(check_pointers(problem, args));
  FLASHCORE_RETURN_IF_ERROR(check_all_apart(what, args));
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
