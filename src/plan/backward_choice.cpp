#include "plan/backward_choice.hpp"

#include "cuda/backward_sm90/split/supports.hpp"

namespace flashcore {

std::string backward_sm90_split_declines(const BackwardProblem& problem,
                                         const PlanContext& context) {
  if (context.batch_invariant) {
    return "batch_invariant: is set, and whether tiles are split depends on the batch";
  }
  if (cuda::backward_sm90::split::best_splits(problem.forward, context.device.multiprocessors) ==
      1) {
    return "k: makes tiles enough for the GPU, or with too few queries to share";
  }
  return {};
}

}  // namespace flashcore
