#include "cuda/backward_sm90/common/pair_plan.hpp"

#include <cstdint>

#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"
#include "cuda/host/tensor_map.hpp"
#include "problem/philox.hpp"

namespace flashcore::cuda::backward_sm90 {
namespace {

constexpr int64_t kPanelBytes = 128;  // of keys, the widest swizzle
constexpr int64_t kMapStep = 16;      // bytes, of a map's strides

int64_t element_bytes(const PairInput& bias) { return static_cast<int64_t>(size_of(bias.dtype)); }

// Rows that a map describes; one row for all queries would be read as one row.
bool has_map(const PairInput& bias) {
  const auto is_step = [step = kMapStep / element_bytes(bias)](int64_t stride) {
    return stride >= 0 && stride % step == 0;
  };
  return bias.key == 1 && bias.query > 0 && is_step(bias.query) && is_step(bias.head) &&
         is_step(bias.batch);
}

}  // namespace

void set_pairs(Pairs& pairs, const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  pairs.bias = host::pair_matrix(p.bias);
  pairs.mask = host::pair_matrix(p.mask);
  pairs.bias_type = host::element_type(p.bias.dtype);
  pairs.bias_tiles = p.bias.present && has_map(p.bias);
  pairs.inverse_scale = 1 / p.softmax_scale;
  pairs.slopes_batch = p.alibi_slopes.batch;
  pairs.slopes_head = p.alibi_slopes.head;
  pairs.d_slopes_batch = problem.d_alibi_slopes.batch;
  pairs.d_slopes_head = problem.d_alibi_slopes.head;
  pairs.d_slopes_by_batch = problem.d_alibi_slopes_elements != p.heads_q;
  const uint64_t threshold = dropout_threshold(p.dropout_p);
  pairs.dropout = p.dropout_p > 0 && threshold > 0;
  pairs.last_dropped = static_cast<uint32_t>(threshold - 1);
  pairs.rescale = p.dropout_p > 0 ? dropout_rescale(p.dropout_p) : 1;
  pairs.state_step = p.dropout_state.batch;
}

void bind_pairs(Pairs& pairs, const ForwardProblem& p, const Arguments& args) {
  pairs.bias.data = p.bias.present ? args.bias : nullptr;
  pairs.mask.data = p.mask.present ? args.mask : nullptr;
  pairs.bias_tiles = pairs.bias_tiles && host::is_aligned(args.bias);
  pairs.slopes = p.alibi_slopes.present ? args.alibi_slopes : nullptr;
  if (!pairs.dropout) return;
  pairs.state = p.dropout_state.present ? args.dropout_state : nullptr;
  if (pairs.state == nullptr) pairs.key = dropout_key(args.dropout_seed, args.dropout_offset);
}

cudaError_t encode_bias_map(CUtensorMap& map, const ForwardProblem& p, const void* bias,
                            int queries) {
  const PairInput& input = p.bias;
  return host::encode_tensor_map(map,
                                 input.dtype == DType::f32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                 : input.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 bias,
                                 {input.batch == 0 ? 1 : p.batch, input.head == 0 ? 1 : p.heads_q,
                                  p.seqlen_q, p.seqlen_kv, input.batch, input.head, input.query},
                                 queries, static_cast<int>(kPanelBytes / element_bytes(input)));
}

}  // namespace flashcore::cuda::backward_sm90
