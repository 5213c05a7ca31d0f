// V's transposition: a task is a block of columns of one head.
#include "cpu/transpose_v.hpp"

#include <cstdint>

#include "cpu/parallel.hpp"

namespace flashcore::cpu {

void transpose_v(const TransposeProblem& p, const void* v, void* v_out, int threads) {
  if (p.head_dim == 0) return;
  const int64_t blocks = p.columns / kColumnBlock;
  parallel_for(p.batch * p.heads * blocks, threads, [&](int64_t task) {
    const int64_t first = task % blocks * kColumnBlock, head = task / blocks % p.heads;
    const int64_t batch = task / blocks / p.heads;
    auto* const to = static_cast<uint8_t*>(v_out) + p.v_out.at(batch, head, 0);
    for (int64_t key = first; key < first + kColumnBlock; ++key) {
      uint8_t* const column = to + column_of_key(key);
      if (key >= p.rows) {
        for (int64_t d = 0; d < p.head_dim; ++d) column[d * p.v_out.row] = 0;
        continue;
      }
      const auto* const row = static_cast<const uint8_t*>(v) + p.v.at(batch, head, key);
      for (int64_t d = 0; d < p.head_dim; ++d) column[d * p.v_out.row] = row[d];
    }
  });
}

}  // namespace flashcore::cpu
