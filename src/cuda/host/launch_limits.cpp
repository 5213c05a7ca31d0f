#include "cuda/host/launch_limits.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/attention/kv_range.hpp"

namespace flashcore::cuda::host {

std::string refuse_rows(const ForwardProblem& p) {
  for (const auto& [name, rows] : {std::pair{"q", p.packed ? p.total_q : p.seqlen_q},
                                   std::pair{"k", p.packed ? p.total_kv : p.seqlen_kv}}) {
    if (rows >= attention::kMostRows) {
      return fmt::format("{}: has {} rows, wanted less than {}", name, rows, attention::kMostRows);
    }
  }
  return {};
}

std::string refuse_tiles(const ForwardProblem& p, int block_q) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
  if (p.batch > 0 && p.heads_q > kMost / p.batch) {
    return fmt::format("q: has {} batch entries of {} heads, wanted at most {} heads in all",
                       p.batch, p.heads_q, kMost);
  }
  const int64_t tiles = (p.seqlen_q + block_q - 1) / block_q;
  if (tiles > 0 && p.batch * p.heads_q > kMost / tiles) {
    return fmt::format(
        "q: has {} tiles of {} queries in each of {} heads, wanted at most {} in all", tiles,
        block_q, p.batch * p.heads_q, kMost);
  }
  return {};
}

}  // namespace flashcore::cuda::host
