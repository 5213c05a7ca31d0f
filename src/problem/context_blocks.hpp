// Blocks of context parallelism: which keys of a piece the queries of another piece see, joined where one block says the
// same as two, and their areas.
#pragma once

#include <cstdint>
#include <vector>

#include "flashcore/context_parallel.hpp"
#include "problem/visibility.hpp"

namespace flashcore::context {

// Rows [begin, begin + rows) of a document are rows [place, place + rows) of a shard.
struct Piece {
  int64_t begin = 0;
  int64_t place = 0;
  int64_t rows = 0;
};

// Queries and keys by their rows in two shards. Query q_begin + i sees key kv_begin + j when i + lower <= j <= i + upper.
struct Block {
  static constexpr int64_t kNoLower = -(int64_t{1} << 60);
  static constexpr int64_t kNoUpper = int64_t{1} << 60;
  int64_t q_begin = 0;
  int64_t q_end = 0;
  int64_t kv_begin = 0;
  int64_t kv_end = 0;
  int64_t lower = kNoLower;  // none where it cuts nothing off
  int64_t upper = kNoUpper;

  friend bool operator==(const Block&, const Block&) = default;
};

// The rows that layouts give to a rank of a document that begins in its shard at `place`: one or two pieces.
std::vector<Piece> pieces_of(ContextLayout layout, int64_t world, int64_t rank, int64_t length,
                             int64_t place);

// The blocks of a document's pieces, as few as possible, in the order of their queries. Query i of the document is
// aligned with key i + offset.
std::vector<Block> blocks_of(const std::vector<Piece>& q, const std::vector<Piece>& kv,
                             const Band& band, int64_t offset);

// The number of pairs that remain.
double area_of(const Block& block);

// Adds the next document's blocks to calls, each to another one: the first that it may join, or a
// new one. Documents come in the order of their rows.
void add_to_calls(const std::vector<Block>& blocks, std::vector<ContextCall>& calls);

}  // namespace flashcore::context
