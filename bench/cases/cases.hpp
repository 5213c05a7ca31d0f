// The problems that verify and bench name: data, one row a problem.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tensors/tensor_set.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

struct Case {
  std::string name;
  DType dtype = DType::f16;
  int64_t batch = 1;
  int64_t heads_q = 1;
  int64_t heads_kv = 1;
  int64_t seqlen_q = 1;
  int64_t seqlen_kv = 1;
  int64_t head_dim = 64;
  int64_t head_dim_v = 0;  // 0: head_dim
  bool causal = false;
  bool top_left = false;  // where the diagonal is, if not bottom right
  // Features beyond it, docs/semantics.md: a peer is not asked for them.
  float softcap = 0;
  int64_t window_left = -1;
  int64_t window_right = -1;
  std::optional<DType> bias = std::nullopt;  // [1, heads_q, seqlen_q, seqlen_kv], N(0, 1)
  bool mask = false;                         // [1, 1, seqlen_q, seqlen_kv], three of four attend
  bool alibi = false;
  bool sinks = false;   // [heads_q], N(0, 1)
  bool packed = false;  // batch * seqlen rows in all, of entries whose lengths rise evenly
  // Packed: the lengths that the problem declares; 0: those of the longest entry. Where one is given,
  // all entries are equally long.
  int64_t max_seqlen_q = 0, max_seqlen_kv = 0;
  float dropout_p = 0;
  bool scales = false;  // f8e4m3, with a scale per batch entry and head, as a user would make it
  bool v_transposed = false;
  // K and V are a cache, docs/semantics.md.
  int64_t page_size = 0;                         // rows of a page, in a random order; 0: one piece
  std::optional<DType> kv_dtype = std::nullopt;  // where it is not that of q
  std::optional<DType> v_dtype = std::nullopt;   // where it is not that of k
  bool tree = false;                             // queries are a binary tree of tokens
  bool ragged = false;                           // keys in use: ragged_lengths
  bool rotated = false;                          // calls take turns with rotated_copies of K and V
  // O, where it is not what to_problem makes it; in fp8 with kOutputScale.
  std::optional<DType> o_dtype = std::nullopt;
  bool largest = false;  // with amax_o and amax_s, an element each batch entry and head
};

// Of an fp8 O of N(0, 1) inputs: no average of values is so large that it saturates.
inline constexpr float kOutputScale = 0x1p-6f;

// The features in words: "softcap 30, bias f32"; empty for a plain case.
std::string features_text(const Case& one);

// (B, H, S, D) with as many key heads as query heads and as many keys as queries.
Case square_case(std::string name, DType dtype, int64_t batch, int64_t heads, int64_t seqlen,
                 int64_t head_dim, bool causal);

// Where the entries of a packed batch begin, [batch + 1]: the last is `batch` times as long as the
// first.
std::vector<int32_t> packed_starts(int64_t total, int64_t batch);

// The same of a problem that says `longest`: where all entries can be that long, they are.
std::vector<int32_t> packed_starts(int64_t total, int64_t batch, int64_t longest);

// Keys in use of each entry where they differ: they rise evenly to `longest`, from an eightieth.
std::vector<int32_t> ragged_lengths(int64_t longest, int64_t batch);

// The tree mask of `tree`, one row: token t's parent is (t - 1) / 2.
std::vector<int32_t> tree_words(int64_t tokens);

// How many copies of K and V calls take in turn, so that each reads them from memory: between two calls
// on one, at least 512 MB of others are read, eight times the largest L2. 1: not `rotated`.
int64_t rotated_copies(const Case& one);

// Keys in use of each entry.
std::vector<int32_t> keys_in_use(const Case& one);

// Contiguous [B, H, S, D] tensors, or [B * S, H, D] where they are packed. O has the inputs' type
// (f16 for fp8), if the case has no other. With LSE. Pages are [num_pages, page_size, H, D] in memory, as many as entries fill.
Problem to_problem(const Case& one);

// Its data: inputs drawn from N(0, 1), outputs poisoned.
HostProblem fill(const Case& one, uint64_t seed);

// The shapes of the gates: small, mission, long, wide; not causal.
std::vector<Case> gate_shapes();

// The suites of `bench`: name and what it holds.
struct Suite {
  std::string_view name;
  std::string_view summary;
};
std::vector<Suite> suites();

// The cases of a suite; nothing when no suite is called so. `quick`: an eighth of the entries and of
// the keys, for those suites that have that, and nothing for the others.
std::optional<std::vector<Case>> suite_cases(std::string_view name, bool quick = false);

}  // namespace flashcore::bench
