#include "problem/context_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace flashcore::context {
namespace {

int64_t queries(const Block& block) { return block.q_end - block.q_begin; }
int64_t keys(const Block& block) { return block.kv_end - block.kv_begin; }
bool has_lower(const Block& block) { return block.lower != Block::kNoLower; }
bool has_upper(const Block& block) { return block.upper != Block::kNoUpper; }

// Without limits that cut nothing off.
Block normal(Block block) {
  if (queries(block) - 1 + block.lower <= 0) block.lower = Block::kNoLower;
  if (block.upper >= keys(block) - 1) block.upper = Block::kNoUpper;
  return block;
}

// The part of a block in the rectangle of another.
Block part(const Block& block, const Block& of) {
  const int64_t shift = of.q_begin - block.q_begin - (of.kv_begin - block.kv_begin);
  Block cut = of;
  cut.lower = has_lower(block) ? block.lower + shift : Block::kNoLower;
  cut.upper = has_upper(block) ? block.upper + shift : Block::kNoUpper;
  return normal(cut);
}

bool sees_nothing(const Block& block) {
  return queries(block) <= 0 || keys(block) <= 0 || queries(block) - 1 + block.upper < 0 ||
         block.lower > keys(block) - 1;
}

// Two limits as one: the only one, or both if they are equal.
std::optional<int64_t> common(int64_t a, int64_t b, int64_t none) {
  if (a == none || a == b) return b;
  if (b == none) return a;
  return {};
}

// One block instead of two, side by side or one below the other, if it has the same pairs.
std::optional<Block> joined(const Block& a, const Block& b, bool beside) {
  const bool fits = beside ? a.q_begin == b.q_begin && a.q_end == b.q_end && a.kv_end == b.kv_begin
                           : a.kv_begin == b.kv_begin && a.q_end == b.q_begin;
  if (!fits) return {};
  const int64_t shift = beside ? keys(a) : -queries(a);
  const auto lower = common(a.lower, has_lower(b) ? b.lower + shift : b.lower, Block::kNoLower);
  const auto upper = common(a.upper, has_upper(b) ? b.upper + shift : b.upper, Block::kNoUpper);
  if (!lower || !upper) return {};
  const Block both{a.q_begin, b.q_end, a.kv_begin, std::max(a.kv_end, b.kv_end), *lower, *upper};
  if (part(both, a) != a || part(both, b) != b) return {};
  for (const Block& one : {a, b}) {  // what is in neither
    Block rest{one.q_begin, one.q_end, one.kv_end, both.kv_end};
    if (!beside && keys(rest) > 0 && !sees_nothing(part(both, rest))) return {};
  }
  return both;
}

void join(std::vector<Block>& blocks, bool beside) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t other = i + 1; other < blocks.size();) {
      const std::optional<Block> both = joined(blocks[i], blocks[other], beside);
      if (!both) {
        ++other;
        continue;
      }
      blocks[i] = *both;
      blocks.erase(blocks.begin() + static_cast<int64_t>(other));
      other = i + 1;
    }
  }
}

// Sum over i in [0, queries) of the keys j < keys with j <= i + upper.
double keys_up_to(int64_t queries, int64_t keys, int64_t upper) {
  const int64_t first = std::clamp<int64_t>(-upper, 0, queries);           // sees one key
  const int64_t full = std::clamp<int64_t>(keys - 1 - upper, 0, queries);  // sees all
  const double rows = static_cast<double>(std::max<int64_t>(full - first, 0));
  const double sloped = rows * (static_cast<double>(first + upper + 1) + (rows - 1) / 2);
  return sloped + static_cast<double>(queries - std::max(first, full)) * static_cast<double>(keys);
}

struct Window {
  int64_t left;
  int64_t right;
  int64_t offset;
  friend bool operator==(const Window&, const Window&) = default;
};

// As the operator says it.
Window window_of(const Block& block) {
  if (has_upper(block)) {
    return {has_lower(block) ? block.upper - block.lower : -1, 0, block.upper};
  }
  if (has_lower(block)) return {0, -1, block.lower};
  return {-1, -1, 0};
}

}  // namespace

std::vector<Piece> pieces_of(ContextLayout layout, int64_t world, int64_t rank, int64_t length,
                             int64_t place) {
  const bool is_zigzag = layout == ContextLayout::zigzag;
  const int64_t count = is_zigzag ? 2 * world : world;
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < (is_zigzag ? 2 : 1); ++i) {
    const int64_t number = i == 0 ? rank : count - 1 - rank;
    const int64_t longer = length % count;  // pieces with one row more: the first ones
    const int64_t rows = length / count + (number < longer ? 1 : 0);
    const int64_t begin = number * (length / count) + std::min(number, longer);
    if (rows > 0) pieces.push_back({begin, place, rows});
    place += rows;
  }
  return pieces;
}

std::vector<Block> blocks_of(const std::vector<Piece>& q, const std::vector<Piece>& kv,
                             const Band& band, int64_t offset) {
  std::vector<Block> blocks;
  for (const Piece& queries : q) {
    for (const Piece& piece : kv) {
      const int64_t diagonal = queries.begin + offset - piece.begin;
      const Sequence sequence{.len_q = queries.rows, .len_kv = piece.rows, .offset = diagonal};
      const KeyRange seen = visible_keys(sequence, band, 0, queries.rows);
      if (seen.empty()) continue;
      Block block{queries.place, queries.place + queries.rows, piece.place + seen.begin,
                  piece.place + seen.end};
      if (band.left >= 0) block.lower = diagonal - seen.begin - band.left;
      if (band.right >= 0) block.upper = diagonal - seen.begin + band.right;
      blocks.push_back(normal(block));
    }
  }
  join(blocks, true);
  join(blocks, false);
  return blocks;
}

double area_of(const Block& block) {
  const int64_t rows = queries(block);
  const int64_t columns = keys(block);
  const double below = has_lower(block) ? keys_up_to(rows, columns, block.lower - 1) : 0;
  return keys_up_to(rows, columns, std::min(block.upper, rows + columns)) - below;
}

void add_to_calls(const std::vector<Block>& blocks, std::vector<ContextCall>& calls) {
  std::vector<int64_t> taken;  // calls with a block of this document
  for (const Block& block : blocks) {
    const auto accepts = [&](const ContextCall& call) {
      if (std::count(taken.begin(), taken.end(), &call - calls.data()) > 0) return false;
      Window window = window_of(block);
      // A causal call takes a full block as well.
      if (window == Window{-1, -1, 0} && call.window_left < 0) window.right = call.window_right;
      return window.left == call.window_left && window.right == call.window_right;
    };
    auto call = std::find_if(calls.begin(), calls.end(), accepts);
    Window window = window_of(block);
    if (call == calls.end()) {
      call = calls.insert(call, ContextCall{window.left, window.right, {}});
    } else if (window == Window{-1, -1, 0} && call->window_right == 0) {
      window.offset = keys(block);
    }
    taken.push_back(call - calls.begin());
    call->blocks.push_back(
        {block.q_begin, block.q_end, block.kv_begin, block.kv_end, window.offset});
  }
}

}  // namespace flashcore::context
