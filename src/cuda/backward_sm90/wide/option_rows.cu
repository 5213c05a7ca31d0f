// What backward_sm90_wide does by rows where a problem has options or a head dimension below 256.
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/backward_sm90/common/exact_options.cuh"
#include "cuda/backward_sm90/common/notes_of_rows.cuh"
#include "cuda/backward_sm90/common/option_rows.cuh"
#include "cuda/backward_sm90/wide/launch.hpp"
#include "cuda/host/launch_kernel.hpp"

namespace flashcore::cuda::backward_sm90::wide {
namespace {

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;
constexpr int kLanes = kHeadDim / kLaneDims;  // of a query

constexpr int64_t all_rows(const Params& p) {
  return int64_t{block_batch(p)} * p.heads_q * p.q_blocks * kBlockQ;
}

// As begin_wide_kernel.
template <class Element>
__global__ void __launch_bounds__(kRowThreads)
    begin_wide_options_kernel(const __grid_constant__ OptionParams p) {
  const int64_t thread = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
  for (int64_t i = thread; i < p.blocks(); i += int64_t{gridDim.x} * kRowThreads) {
    p.not_finite[i] = 0;
  }
  const int64_t row = thread / kLanes;
  if (row >= all_rows(p)) return;
  write_note_of_entry<kLanes, Element>(p, p.options, row, kBlockQ,
                                       static_cast<int>(threadIdx.x % kLanes));
}

// As end_wide_kernel. A packed batch has its zeros already.
template <class Element>
__global__ void __launch_bounds__(kRowThreads)
    end_wide_options_kernel(const __grid_constant__ OptionParams p) {
  uint32_t index = blockIdx.x;
  if (p.not_finite[index] == 0) return;
  const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const bool of_queries = index < p.query_order.size();
  EntryBlock block;
  if (of_queries) {
    const attention::TileOrder::Place place = p.query_order.at(index);
    block = query_block(p, place.batch_head * p.q_blocks + place.q_tile, kBlockQ);
  } else {
    index -= p.query_order.size();
    const KeyTile place = key_tile(p.key_order, index);
    block = key_block(p, place.batch_head, place.tile, kRows);
  }
  const EntryRows entry = entry_rows(p, p.options.band, block.entry, kBlockQ);
  const ExactEntry exact{p, p.options, entry, kBlockQ};
  if (of_queries) {
    const int first = block.block * kBlockQ;
    const int end = min(first + kBlockQ, is_packed(p) ? entry.len_q : p.seqlen_q);
    for (int query = first + warp; query < end; query += kRowWarps) {
      compute_entry_query<kHeadDim, Element>(exact, block.head, query, lane);
    }
    return;
  }
  const int end = min((block.block + 1) * kRows, is_packed(p) ? entry.limits.len_kv : p.seqlen_kv);
  for (int key = block.block * kRows + warp; key < end; key += kRowWarps) {
    compute_entry_key<kHeadDim, Element>(exact, block.head, key, lane);
  }
}

template <class Element>
cudaError_t prepare() {
  cudaFuncAttributes attributes{};
  for (const auto kernel :
       {&begin_wide_options_kernel<Element>, &end_wide_options_kernel<Element>}) {
    const cudaError_t error =
        cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    if (error != cudaSuccess) return error;
  }
  return backward_sm90::prepare_option_rows();
}

}  // namespace

cudaError_t prepare_option_rows(InputType type) {
  return type == InputType::f16 ? prepare<Fp16>() : prepare<Bf16>();
}

cudaError_t begin_option_rows(InputType type, const OptionParams& params, cudaStream_t stream) {
  cudaError_t error = zero_hidden_rows(params, stream);
  if (error != cudaSuccess) return error;
  const int64_t blocks = (all_rows(params) * kLanes + kRowThreads - 1) / kRowThreads;
  error = host::launch_kernel(
      type == InputType::f16 ? &begin_wide_options_kernel<Fp16> : &begin_wide_options_kernel<Bf16>,
      {.grid = dim3(static_cast<unsigned int>(blocks)), .threads = kRowThreads}, stream, params);
  return error == cudaSuccess ? add_sink_terms(params, params.options, kBlockQ, stream) : error;
}

cudaError_t end_option_rows(InputType type, const OptionParams& params, cudaStream_t stream) {
  return host::launch_kernel(
      type == InputType::f16 ? &end_wide_options_kernel<Fp16> : &end_wide_options_kernel<Bf16>,
      {.grid = dim3(params.blocks()), .threads = kRowThreads}, stream, params);
}

}  // namespace flashcore::cuda::backward_sm90::wide
