// The parameters of one launch of forward_sm80_throughput. Strides are in elements.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <cstring>

#include "cuda/attention/divisor.hpp"
#include "cuda/attention/element_type.hpp"
#include "cuda/attention/forward_params.hpp"
#include "cuda/attention/inputs.hpp"
#include "cuda/attention/kv_cache.hpp"
#include "cuda/attention/scheduler.hpp"
#include "cuda/attention/softcap.hpp"
#include "problem/philox.hpp"
#include "problem/visibility.hpp"

namespace flashcore::cuda::forward_sm80::throughput {

using attention::ElementType, attention::HeadVector;

// As attention::PairMatrix, which as its base would cost kernels registers.
struct PairMatrix {
  const void* data;
  int64_t batch, head, query, key;
  bool in_pairs;  // keys are contiguous, and every even key is aligned to two elements
};

// Distances between rows and keys are exact in fp32 if rows, keys and offsets are at most this.
inline constexpr int kFarthest = 1 << 22;

// The options for which Features::scores has a hot line; all others are processed in slices.
enum class ScoreLine : int32_t { none, softcap, bias, alibi };

struct Params : attention::ForwardParams {
  int64_t q_pass_bytes, k_pass_bytes, v_pass_bytes;  // size of the rows that a block copies at once

  Band band;
  float softmax_scale;
  // Factors of a score in the exact softmax, to natural units and to units of log2:
  // the scale if scores are plain products, 1 if features have made them natural.
  float score_unit, score_unit_log2;
  bool scores_natural;
  HeadVector sinks;

  attention::TileOrder order;  // of query tiles; a packed batch uses longest_first only
  attention::Divisor by_tiles, by_section, by_section_heads;  // divisors of the order
  attention::Divisor by_heads_q, by_group;                    // heads_q, heads_q / heads_kv
  int packed_slots;  // per head, see packed_tiles.hpp; 0: every sequence has order.q_tiles tiles

  // Rows are 16-byte chunks without padding: K and V tiles inside a sequence need no test.
  bool whole_chunks;
  ElementType o_type;
  bool o_vectors;  // O has the type of Q and rows of aligned 16-byte chunks

  // Read only by the instances with features.
  ScoreLine score_line;
  float cap_terms[4];    // softcap of a product is itself times a polynomial in its square, ...
  float cap_fourth;      // ... valid while the fourth powers of a lane's tile sum to at most this
  float largest_first;   // bound on scores of a tile that sets references, see mainloop.cuh
  float score_headroom;  // of references, log2: see Element::kHeadroom
  float smallest_sum;    // below it, a row whose reference is too high may have lost bits
  int splits;  // upper bound per sequence; each split has its own blocks; 1: O and LSE are stored
               // directly
  float* partial_o;      // [row, split, head_dim_v], not yet divided by the sums: see partial_row()
  float2* partial_rows;  // [row, split]: reference in score units, sum
  bool chunks_qk,
      chunks_v;  // rows are 16-byte aligned and whole chunks; otherwise element by element
  attention::SoftcapParams softcap;  // scores in units of log2
  float cap;                         // in natural units; 0: off
  PairMatrix bias, mask;
  ElementType bias_type;
  HeadVector alibi_slopes;
  bool dropout;
  uint32_t dropout_threshold;  // a pair is kept if its word is at least this
  float dropout_rescale;
  PhiloxKey dropout_key;
};

// With Features::all: dropout's seed and offset in memory, or null: dropout_key applies.
struct StateParams : Params {
  const int64_t* dropout_state;
  int64_t dropout_state_step;
};

// One element per sequence, KV head and block of keys; absent if data is null.
struct KeyScales {
  const float* data;
  int64_t batch, head, block;

  constexpr bool by_key() const { return data != nullptr && block != 0; }
};

// One number per sequence and head, which only grows; absent if data is null.
struct LargestValues {
  float* data;
  int64_t batch, head;
  int64_t batches, heads;  // extents
};

enum class Fp8Output : int32_t { none, e4m3, e5m2 };

// With Features::fp8: the types of Q, K and V, and the scales of their elements.
struct Fp8Params : StateParams {
  bool q_e5m2, kv_e5m2;  // otherwise e4m3
  HeadVector q_scale;
  KeyScales k_scale, v_scale;
  attention::Divisor by_scale_block;
  Fp8Output o_fp8;  // O's type, if it is not an ElementType
  HeadVector o_scale;
  LargestValues amax_o, amax_s;
};

// Strides of K or V in pieces of 16 bytes. The last row begins before piece 2^32 - 9,
// so that indices of its first 128 bytes fit 32 bits without using the largest value.
struct ChunkStrides {
  uint32_t lead, head, row;  // lead: from page to page, or from sequence to sequence
};

// With Features::logits: the largest score of each head, which starts as -inf.
struct LogitParams : StateParams {
  LargestValues max_logit;
};

// With Features::paged: the cache that holds the keys. Contiguous
// keys are a page of so many rows that there is no second one.
struct PagedParams : Params {
  attention::KvCacheParams cache;
  int table_step;  // cache.table_page
  ChunkStrides k_chunks, v_chunks;
};

// The parameters of a launch of any kernel: each takes its part.
struct LaunchParams : Fp8Params {
  attention::KvCacheParams cache;
  int table_step;
  ChunkStrides k_chunks, v_chunks;
  LargestValues max_logit;

  operator LogitParams() const {
    auto told = part<LogitParams, StateParams>();
    told.max_logit = max_logit;
    return told;
  }
  operator PagedParams() const {
    auto told = part<PagedParams, Params>();
    told.cache = cache;
    told.table_step = table_step;
    told.k_chunks = k_chunks;
    told.v_chunks = v_chunks;
    return told;
  }

 private:
  // Has no other bytes in its padding than 0: recorded launches are compared bytewise.
  template <class Told, class Common>
  Told part() const {
    Told told;
    std::memset(static_cast<void*>(&told), 0, sizeof told);
    static_cast<Common&>(told) = *this;
    return told;
  }
};

}  // namespace flashcore::cuda::forward_sm80::throughput
