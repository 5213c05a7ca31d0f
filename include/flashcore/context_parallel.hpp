// Attention over several GPUs (context parallelism): what each rank computes, sends and receives,
// as data.
//
// The tokens of a batch are cut into shards, one for each rank. A rank computes the rows of its
// queries, and keys and values come from the other ranks. make_context_plan says in which order; it
// moves nothing and needs no GPU. A program carries the plan out with the transport that it has,
// such as NCCL, and with make_plan, make_backward_plan and merge. docs/distributed.md shows how.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "flashcore/flashcore.hpp"

namespace flashcore {

// How the rows of each document are cut into shards. Pieces differ by one row at most.
enum class ContextLayout : int32_t {
  contiguous = 0,  // one piece for each rank, in order
  zigzag = 1,      // two pieces for each: r and 2 * world - 1 - r, so that causal work is equal
};

enum class ContextAlgorithm : int32_t {
  automatic = 0,   // the one with the lowest predicted time; ring among equals
  ring = 1,        // K and V travel from rank to rank, one block at a time
  all_gather = 2,  // every rank collects all of K and V
  ulysses = 3,     // every rank gets all rows of its share of the heads
};

struct ContextProblem {
  int32_t world = 1;  // number of ranks
  int32_t rank = 0;   // the rank whose plan is made
  ContextLayout layout = ContextLayout::zigzag;
  ContextAlgorithm algorithm = ContextAlgorithm::automatic;
  // Rows of each document, over all ranks. A dense batch is one document; a packed one has one for
  // each sequence.
  std::vector<int64_t> seqlens_q;
  std::vector<int64_t> seqlens_kv;
  // As in Problem; the alignment is top_left or bottom_right, and holds for each document.
  bool causal = false;
  Alignment alignment = Alignment::bottom_right;
  int64_t window_left = -1;
  int64_t window_right = -1;
  // For the predicted times, and, the heads, for Ulysses.
  int64_t batch = 1;  // of a dense batch
  int64_t heads_q = 1;
  int64_t heads_kv = 1;
  int64_t head_dim_qk = 128;
  int64_t head_dim_v = 128;
  int64_t element_bytes = 2;
  // The bytes that a rank sends while it receives as many, and its operations. The defaults were
  // measured on two H200 by python/benchmarks/context_parallel.py, bf16, 131072 tokens.
  double link_bytes_per_second = 167e9;
  double flops_per_second = 680e12;
};

// Rows [begin, begin + rows) of the whole tensor are rows [place, place + rows) of the rank's
// shard.
struct ContextPiece {
  int64_t rank = 0;
  int64_t begin = 0;
  int64_t place = 0;
  int64_t rows = 0;
};

// Queries [q_begin, q_end) against keys [kv_begin, kv_end): query q_begin + i is aligned with key
// kv_begin + i + offset.
struct ContextBlock {
  int64_t q_begin = 0;
  int64_t q_end = 0;
  int64_t kv_begin = 0;
  int64_t kv_end = 0;
  int64_t offset = 0;
};

// One call of attention: a window and its blocks, at most one of each document. They are in order,
// and overlap neither in queries nor in keys, so that several are one packed batch: their begins are
// cu_seqlens, with lengths in seqlens_q and seqlens_kv, and the offsets are causal_offsets.
struct ContextCall {
  int64_t window_left = -1;  // as in Problem, with Alignment::given
  int64_t window_right = -1;
  std::vector<ContextBlock> blocks;
};

// Ranks to exchange with in this step, -1 for none. Sends and receives of one step meet each other
// on all ranks.
struct ContextStep {
  // Ring: whose K and V this rank has now. -1: none, and there are no calls.
  int32_t owner = -1;
  int32_t send_to = -1;       // the K and V at hand go there, while the calls run
  int32_t send_own_to = -1;   // the rank's own K and V go there
  int32_t receive_from = -1;  // the next step's K and V come from there
  // Backward. The rank adds its dK and dV of other owners' blocks to the sum that came with them, if
  // one did. After the calls, the sum at hand goes to a rank, which is the owner where it is
  // complete; the next step's comes from one; and a complete one of this rank's own comes home.
  int32_t gradient_to = -1;
  int32_t gradient_from = -1;
  int32_t gradient_home_from = -1;
  std::vector<ContextCall> calls;
};

struct ContextPlan {
  ContextAlgorithm algorithm = ContextAlgorithm::ring;  // never automatic
  int64_t rows_q = 0;                                   // of this rank's shards
  int64_t rows_kv = 0;
  std::vector<ContextPiece> pieces_q;  // of every rank, in order of rank and place
  std::vector<ContextPiece> pieces_kv;
  // Ring: blocks are rows of the rank's Q and of the owner's K and V. all_gather: of the rank's Q,
  // and of the whole K and V. ulysses: of the whole tensors. The last two have one step.
  std::vector<ContextStep> steps;
  // True: O begins as 0 and the LSE as -inf, and every call is merged. False: the first call writes
  // all rows.
  bool initialise = false;
  // Predicted time of the slowest rank in a forward pass: ring, all_gather, ulysses. Infinite: it
  // is not possible.
  std::array<double, 3> seconds{};
};

// invalid_argument: a rank outside of the world, different numbers of documents, a negative length.
// unsupported: ulysses with heads that the ranks do not divide.
FLASHCORE_API Result<ContextPlan> make_context_plan(const ContextProblem& problem);

}  // namespace flashcore
