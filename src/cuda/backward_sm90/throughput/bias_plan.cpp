#include "cuda/backward_sm90/throughput/bias_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/backward_sm90/throughput/config.hpp"
#include "cuda/backward_sm90/throughput/supports.hpp"
#include "cuda/host/element_type.hpp"
#include "cuda/host/forward_launch.hpp"

namespace flashcore::cuda::backward_sm90::throughput {
namespace {

int tiles(int64_t rows) { return static_cast<int>((rows + kBiasTile - 1) / kBiasTile); }

}  // namespace

BiasPlan plan_bias(const BackwardProblem& problem, int multiprocessors) {
  const PairInput& d_bias = problem.d_bias;
  BiasPlan plan;
  if (!d_bias.present) return plan;
  BiasTarget& target = plan.target;
  target = {.data = nullptr,
            .batch = d_bias.batch,
            .head = d_bias.head,
            .query = d_bias.query,
            .key = d_bias.key,
            .type = host::element_type(d_bias.dtype),
            .extents = {},
            .chunks = d_bias.dtype != DType::f32 && d_bias.key == 1 && d_bias.query % 8 == 0 &&
                      d_bias.head % 8 == 0 && d_bias.batch % 8 == 0};
  std::copy_n(problem.d_bias_extents, 4, target.extents);
  plan.q_tiles = tiles(problem.forward.seqlen_q);
  plan.k_tiles = tiles(problem.forward.seqlen_kv);
  plan.items = bias_items(problem);
  plan.blocks = std::min<int64_t>(plan.items, multiprocessors);
  return plan;
}

Status load_bias(BiasPlan& plan, const launch::Loader& loader, std::string_view family,
                 std::string_view prefix) {
  if (plan.items == 0) return {};
  FLASHCORE_RETURN_IF_ERROR(loader.load(plan.tiles, family, fmt::format("{}_d_bias", prefix)));
  return loader.load(plan.finish, family, fmt::format("{}_finish_d_bias", prefix));
}

Status launch_bias(const BiasPlan& plan, const Maps& maps, const PairParams& params, void* d_bias,
                   uint32_t* marks, const launch::Launcher& launcher) {
  if (plan.items == 0) return {};
  BiasParams own{};
  static_cast<PairParams&>(own) = params;
  own.d_bias = plan.target;
  own.d_bias.data = d_bias;
  own.d_bias.chunks = own.d_bias.chunks && host::is_aligned(d_bias);
  own.q_tiles = plan.q_tiles;
  own.k_tiles = plan.k_tiles;
  own.items = static_cast<uint32_t>(plan.items);
  own.marks = marks;
  const auto grid = [](int64_t blocks) {
    return launch::Grid{.blocks = dim3(static_cast<unsigned int>(blocks))};
  };
  FLASHCORE_RETURN_IF_ERROR(launcher.launch(plan.tiles, grid(plan.blocks), maps, own));
  return launcher.launch(plan.finish, grid((plan.items + kItems - 1) / kItems), own);
}

}  // namespace flashcore::cuda::backward_sm90::throughput
