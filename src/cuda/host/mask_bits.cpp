#include "cuda/host/mask_bits.hpp"

#include "problem/sizes.hpp"

namespace flashcore::cuda::host {
namespace {

int64_t groups(int64_t rows, int64_t of) { return (rows + of - 1) / of; }

}  // namespace

MaskBitsPlan plan_mask_bits(const ForwardProblem& p, attention::BitsAlong along) {
  using namespace attention;
  const PairInput& mask = p.mask;
  PackMask params{};
  params.batch = mask.batch, params.head = mask.head;
  params.query = mask.query, params.key = mask.key;
  params.batches = mask.batch == 0 ? 1 : static_cast<int>(p.batch);
  params.heads = mask.head == 0 ? 1 : static_cast<int>(p.heads_q);
  params.queries = mask.query == 0 ? 1 : static_cast<int>(p.seqlen_q);
  params.keys = static_cast<int>(p.seqlen_kv);
  params.along = along;
  const int64_t key_groups = groups(params.keys, kPackedKeys);
  const bool fills_queries = along == BitsAlong::queries && mask.query != 0;
  const int64_t query_groups =
      fills_queries ? groups(params.queries, kMaskTile) * (kMaskTile / kPackedQueries)
                    : groups(params.queries, kPackedQueries);
  params.key_groups = static_cast<int>(key_groups);
  params.query_groups = static_cast<int>(query_groups);
  MaskBits& bits = params.bits;
  int64_t head_words = 0;
  if (along == BitsAlong::keys) {
    bits.query = mask.query == 0 ? 0 : key_groups * (kPackedKeys / kMaskWordBits);
    bits.key = 1;
    head_words = key_groups * (kPackedKeys / kMaskWordBits) * params.queries;
  } else {
    bits.query = mask.query == 0 ? 0 : key_groups * kPackedKeys;
    bits.key = 1;
    head_words = key_groups * kPackedKeys * query_groups;
  }
  bits.head = mask.head == 0 ? 0 : head_words;
  bits.batch = mask.batch == 0 ? 0 : head_words * params.heads;
  const int64_t distinct = int64_t{params.batches} * params.heads;
  return {.params = params,
          .words = product_of({distinct, head_words}),
          .blocks = groups(product_of({distinct, query_groups, key_groups}), kPackWarps)};
}

void bind_mask_bits(attention::PackMask& params, const void* mask, uint32_t* words) {
  params.mask = static_cast<const uint8_t*>(mask);
  params.bits.words = words;
  const auto is_four = [](int64_t stride) { return stride % 4 == 0; };
  params.four_keys = params.key == 1 && is_four(params.query) && is_four(params.head) &&
                     is_four(params.batch) && reinterpret_cast<uintptr_t>(mask) % 4 == 0;
}

}  // namespace flashcore::cuda::host
