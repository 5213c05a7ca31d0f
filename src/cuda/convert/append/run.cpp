#include "cuda/convert/append/run.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/convert/append/params.hpp"
#include "cuda/host/decode_params.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/kernel_targets.hpp"
#include "cuda/launch/launch.hpp"
#include "kernel/device_code.hpp"
#include "problem/row_strides.hpp"
#include "problem/status.hpp"

namespace flashcore::cuda::convert::append {
namespace {

constexpr const char *kName = "append", *kFamily = "convert";
constexpr int64_t kChunk = 8;
constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kMost = INT32_MAX;  // rows, pages and elements of a row, counted in 32 bits

attention::RowMatrix matrix(const void* data, const RowStrides& stride) {
  return {data, stride.batch, stride.head, stride.row};
}

Rotation rotation_of(const AppendProblem& p, const AppendArguments& args) {
  return {.cos = p.from_tables ? args.rope_cos : nullptr,
          .sin = p.from_tables ? args.rope_sin : nullptr,
          .cos_position = p.rope_cos.row,
          .cos_pair = p.rope_cos.head,
          .sin_position = p.rope_sin.row,
          .sin_pair = p.rope_sin.head,
          .positions = p.positions,
          .turns = p.rope_scale / (2 * kPi),
          .log2_step = p.rope_base > 0 ? -2.0 / static_cast<double>(p.rotary_dim) *
                                             std::log2(static_cast<double>(p.rope_base))
                                       : 0,
          .pairs = static_cast<int>(p.rotary_dim / 2),
          .interleaved = p.interleaved};
}

int64_t new_row_count(const ForwardProblem& p) {
  return p.packed ? p.total_q : p.batch * p.seqlen_q;
}

// Returns whether all rows are chunks of 8 elements at multiples of 16 bytes. `cache`: the cache's rows, not the new ones.
bool in_chunks(const AppendProblem& problem, const AppendArguments& args, bool cache) {
  const ForwardProblem& p = problem.cache;
  const int64_t lead = p.packed ? 1 : p.batch, rows = p.packed ? p.total_q : p.seqlen_q;
  const auto aligned = [&](const RowStrides& stride, int64_t heads, const void* data) {
    return host::is_aligned(data) &&
           misaligned_rows("", stride, p.dtype, lead, heads, rows).empty();
  };
  const int64_t pairs = problem.rotary_dim / (problem.interleaved ? 1 : 2);
  return cache && p.head_dim_qk % kChunk == 0 && p.head_dim_v % kChunk == 0 &&
         pairs % kChunk == 0 && aligned(problem.k_new, p.heads_kv, args.k_new) &&
         aligned(problem.v_new, p.heads_kv, args.v_new) &&
         (!problem.has_q || (aligned(problem.q, problem.heads_q, args.q) &&
                             aligned(problem.q_out, problem.heads_q, args.q_out)));
}

Work work_of(const Params& params, bool in_chunks) {
  if (!in_chunks) return Work::elements;
  if (bytes_of(params.type) != 2) return Work::chunks;
  if (params.rotation.pairs > 0 || params.queries.data != nullptr) return Work::turns;
  return params.type == params.k_type ? Work::moves : Work::converts;
}

// V first where the cache has it stored transposed.
Status launch_all(const launch::Launcher& launcher, Params params, bool v_transposed) {
  constexpr std::string_view kWorks[] = {"elements", "chunks", "turns", "converts", "moves"};
  FLASHCORE_RETURN_IF_ERROR(launcher.status());
  if (v_transposed) {
    const auto blocks = static_cast<unsigned int>(params.rows);
    FLASHCORE_RETURN_IF_ERROR(
        launcher.launch(kFamily, "v_transposed", {.blocks = dim3(blocks)}, params));
    params.head_dim_v = 0;
  }
  const int rows_per_block = kThreads / params.threads_per_row;
  const auto blocks =
      static_cast<unsigned int>((params.rows + rows_per_block - 1) / rows_per_block);
  const size_t angles = static_cast<size_t>(rows_per_block) *
                        static_cast<size_t>(params.rotation.pairs) * 2 * sizeof(float);
  return launcher.launch(
      kFamily, kWorks[static_cast<int>(params.work)],
      {.blocks = dim3(blocks), .shared_bytes = static_cast<unsigned int>(angles)}, params);
}

Status check_limits(const AppendProblem& problem) {
  const ForwardProblem& p = problem.cache;
  if (problem.rotary_dim / 2 > kMostPairs) {
    return unsupported("rotary_dim: is {}, wanted at most {} on a GPU", problem.rotary_dim,
                       2 * kMostPairs);
  }
  if (new_row_count(p) > kMost) {
    return unsupported("k_new: has {} rows, wanted at most {} on a GPU", new_row_count(p), kMost);
  }
  if (p.seqlen_kv > kMost || p.paging.num_pages > kMost || p.paging.table_pages > kMost) {
    return unsupported("k: has room for {} rows per sequence, wanted at most {} on a GPU",
                       p.seqlen_kv, kMost);
  }
  return {};
}

}  // namespace

Status run(const AppendProblem& problem, const AppendArguments& args, const DeviceInfo& device,
           Stream stream) {
  const std::string refusal = refuse_code(build::targets::convert, device.compute_capability);
  if (!refusal.empty()) return unsupported("device: {}", refusal);
  const ForwardProblem& p = problem.cache;
  if (p.batch == 0 || new_row_count(p) == 0) return {};
  FLASHCORE_RETURN_IF_ERROR(check_limits(problem));
  Params params{};
  host::set_decode_params(params, p, /*batch_invariant=*/false);
  host::bind_decode_params(params, p, cache_arguments(args));
  params.v_new = matrix(args.v_new, problem.v_new);
  params.queries = matrix(problem.has_q ? args.q : nullptr, problem.q);
  params.rotated = matrix(nullptr, problem.q_out);
  params.k_cache = args.k;
  params.v_cache = args.v;
  params.q_out = problem.has_q ? args.q_out : nullptr;
  params.query_heads = problem.has_q ? static_cast<int>(problem.heads_q) : 0;
  params.type = host::element_type(p.dtype);
  params.k_type = host::element_type(p.k_dtype);
  params.v_type = host::element_type(p.v_dtype);
  params.rotation = rotation_of(problem, args);
  params.rows = new_row_count(p);
  const bool fills_with_warps = params.rows >= int64_t{32} * device.multiprocessors &&
                                params.rotation.pairs <= kMostPairsPerWarp;
  params.threads_per_row = fills_with_warps ? 32 : kThreads;
  params.work = work_of(params, in_chunks(problem, args, params.chunks));
  return launch_all(launch::Launcher(kName, device.device.index, stream), params, p.v_transposed);
}

}  // namespace flashcore::cuda::convert::append
