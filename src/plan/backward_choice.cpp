#include "plan/backward_choice.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "cuda/backward_sm90/throughput/split/supports.hpp"
#include "problem/sizes.hpp"
#include "tuning/gpu.hpp"

namespace flashcore {

std::string sm90_split_declines(const BackwardProblem& problem, const PlanContext& context) {
  const ForwardProblem& p = problem.forward;
  if (context.batch_invariant) {
    return "batch_invariant: is set, and whether it is faster depends on the batch";
  }
  const int64_t tiles = cuda::backward_sm90::split::tiles_of(p);
  const int64_t most = context.device.multiprocessors / (context.deterministic ? 2 : 4);
  if (tiles > most) {
    return fmt::format("k: has {} tiles of keys, wanted at most {}", tiles, most);
  }
  const int64_t queries = product_of({p.heads_q / p.heads_kv, p.seqlen_q});
  const int64_t many = tuning::tuning_of(context.device).table->rules.split_queries;
  if (context.deterministic || queries >= many) return {};
  return fmt::format("q: has {} rows of a key/value head, wanted {}: its sums are deterministic",
                     queries, many);
}

}  // namespace flashcore
