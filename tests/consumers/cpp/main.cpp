// A program outside of the tree, in C++: (B 1, H 8, S 512, D 64), f32. All keys are equal, so every
// output is the mean of the values that its query sees.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <flashcore/context_parallel.hpp>
#include <flashcore/flashcore.hpp>
#include <string>
#include <vector>

int main() {
  using namespace flashcore;
  constexpr size_t kHeads = 8, kSeqlen = 512, kHeadDim = 64;
  const std::vector<float> q(kHeads * kSeqlen * kHeadDim, 0.5f);
  const std::vector<float> k(q.size(), 0.25f);
  std::vector<float> v(q.size());
  std::vector<float> o(q.size(), NAN);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / kHeadDim % kSeqlen);

  Problem problem;
  problem.q = problem.k = problem.v = problem.o =
      TensorDesc::contiguous(DType::f32, {1, kHeads, kSeqlen, kHeadDim});
  problem.causal = true;
  const Result<Plan> plan = make_plan(problem);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().message().c_str());
    return EXIT_FAILURE;
  }
  const Status status = plan->run({.q = q.data(), .k = k.data(), .v = v.data(), .o = o.data()});
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return EXIT_FAILURE;
  }
  double error = 0;
  for (size_t i = 0; i < o.size(); ++i) {
    const double row = static_cast<double>(i / kHeadDim % kSeqlen);
    const double here = std::abs(static_cast<double>(o[i]) - row / 2) / std::max(1.0, row / 2);
    if (!(here <= error)) error = here;  // NaN too
  }
  ContextProblem ranks;
  ranks.world = 2;
  ranks.algorithm = ContextAlgorithm::ring;
  ranks.seqlens_q = ranks.seqlens_kv = {kSeqlen};
  const Result<ContextPlan> route = make_context_plan(ranks);
  if (!route.ok() || route->steps.size() != 2) return EXIT_FAILURE;
  std::printf("flashcore %s from C++: %s, largest scaled error %.1e\n",
              build_info().version.c_str(), std::string(plan->kernel()).c_str(), error);
  return error < 2e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
