// The problems that verify and bench name: data, one row per problem.
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
  bool top_left = false;  // the diagonal's position, if not bottom right
  // More features, docs/semantics.md: peers are not asked for them.
  float softcap = 0;
  int64_t window_left = -1;
  int64_t window_right = -1;
  std::optional<DType> bias = std::nullopt;  // [1, heads_q, seqlen_q, seqlen_kv], N(0, 1)
  bool mask = false;                         // [1, 1, seqlen_q, seqlen_kv], true for three of four
  bool alibi = false;
  bool sinks = false;   // [heads_q], N(0, 1)
  bool packed = false;  // batch * seqlen rows in total; entry lengths increase evenly
  // Packed: the lengths that the problem declares; 0: the longest entry's. If one is given, all
  // entries are equally long.
  int64_t max_seqlen_q = 0, max_seqlen_kv = 0;
  float dropout_p = 0;
  bool scales = false;  // f8e4m3, with a scale per batch entry and head, as users quantise
  bool v_transposed = false;
  // K and V are a cache, docs/semantics.md.
  int64_t page_size = 0;                         // rows per page, in random order; 0: one piece
  std::optional<DType> kv_dtype = std::nullopt;  // if not q's
  std::optional<DType> v_dtype = std::nullopt;   // if not k's
  bool latent = false;                           // V is the first head_dim_v columns of K
  bool tree = false;                             // the queries are a binary tree of tokens
  bool ragged = false;                           // keys in use: ragged_lengths
  bool rotated = false;                          // calls alternate between copies of K and V
  // O's dtype, if not the one that to_problem chooses; fp8 uses kOutputScale.
  std::optional<DType> o_dtype = std::nullopt;
  bool largest = false;  // with amax_o and amax_s, one element per batch entry and head
};

// The scale of an fp8 O for N(0, 1) inputs: no average of values is large enough to saturate.
inline constexpr float kOutputScale = 0x1p-6f;

// Describes the features: "softcap 30, bias f32"; empty for a plain case.
std::string features_text(const Case& one);

// (B, H, S, D) with as many key heads as query heads, and as many keys as queries.
Case square_case(std::string name, DType dtype, int64_t batch, int64_t heads, int64_t seqlen,
                 int64_t head_dim, bool causal);

// The starts of a packed batch's entries, [batch + 1]: the last entry is `batch` times as long
// as the first.
std::vector<int32_t> packed_starts(int64_t total, int64_t batch);

// Overload for a problem that declares `longest`: all entries have this length if they fit.
std::vector<int32_t> packed_starts(int64_t total, int64_t batch, int64_t longest);

// Keys in use per entry if they differ: from an eightieth of `longest`, evenly up to `longest`.
std::vector<int32_t> ragged_lengths(int64_t longest, int64_t batch);

// The tree mask of `tree`, one row: token t's parent is (t - 1) / 2.
std::vector<int32_t> tree_words(int64_t tokens);

// The number of copies of K and V that calls alternate between, so that each call reads them from memory:
// between two uses of a copy, at least 512 MB of others are read, eight times the largest L2. 1: not `rotated`.
int64_t rotated_copies(const Case& one);

// Keys in use per entry.
std::vector<int32_t> keys_in_use(const Case& one);

// Contiguous [B, H, S, D] tensors, or [B * S, H, D] if packed. O has the inputs' type (f16 for fp8) unless the
// case sets another. With LSE. Pages are [num_pages, page_size, H, D] in memory, as many as the entries fill.
Problem to_problem(const Case& one);

// The case's data: inputs drawn from N(0, 1), outputs poisoned.
HostProblem fill(const Case& one, uint64_t seed);

// The shapes of the gates: small, mission, long, wide; not causal.
std::vector<Case> gate_shapes();

// A suite of `bench`: its name and a description.
struct Suite {
  std::string_view name;
  std::string_view summary;
};
std::vector<Suite> suites();

// The cases of a suite; nothing if there is no such suite. `quick`: an eighth of the entries and of
// the keys, for suites that have this form, and nothing for the others.
std::optional<std::vector<Case>> suite_cases(std::string_view name, bool quick = false);

}  // namespace flashcore::bench
