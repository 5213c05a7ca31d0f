#include "cuda/host/launch_limits.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/attention/kv_range.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::host {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch

}  // namespace

std::string refuse_tiles(const ForwardProblem& p, int block_q) {
  if (p.batch > 0 && p.heads_q > kMost / p.batch) {
    return fmt::format("q: has {} sequences of {} heads, wanted at most {} heads in all", p.batch,
                       p.heads_q, kMost);
  }
  const int64_t tiles = (p.seqlen_q + block_q - 1) / block_q;
  if (tiles > 0 && p.batch * p.heads_q > kMost / tiles) {
    return fmt::format(
        "q: has {} tiles of {} queries in each of {} heads, wanted at most {} in all", tiles,
        block_q, p.batch * p.heads_q, kMost);
  }
  return {};
}

std::string refuse_decode_rows(const ForwardProblem& p) {
  const int64_t group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  for (const auto& [name, rows] :
       {std::pair{"k", p.seqlen_kv}, std::pair{"q", product_of({p.seqlen_q, group})}}) {
    if (rows >= attention::kMostRows) {
      return fmt::format("{}: has {} rows of a key/value head, wanted less than {}", name, rows,
                         attention::kMostRows);
    }
  }
  const int64_t rows =
      product_of({p.packed ? p.total_q : product_of({p.batch, p.seqlen_q}), p.heads_q});
  if (rows > kMost) {
    return fmt::format("q: has {} rows in all heads, wanted at most {}", rows, kMost);
  }
  return {};
}

}  // namespace flashcore::cuda::host
