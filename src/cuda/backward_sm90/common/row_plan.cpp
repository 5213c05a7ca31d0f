#include "cuda/backward_sm90/common/row_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/host/forward_launch.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm90 {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;

Target target(const RowStrides& stride) { return {nullptr, stride.batch, stride.head, stride.row}; }

}  // namespace

void set_row_params(RowParams& params, const BackwardProblem& problem, int block_q) {
  const ForwardProblem& p = problem.forward;
  host::set_forward_params(params, p);
  params.d_o = {nullptr, problem.d_o.batch, problem.d_o.head, problem.d_o.row};
  params.d_lse_batch = problem.d_lse.batch, params.d_lse_head = problem.d_lse.head;
  params.d_lse_row = problem.d_lse.row;
  params.dq = target(problem.dq);
  params.dk = target(problem.dk);
  params.dv = target(problem.dv);
  params.limits = attention::band_limits(p.band.left, p.band.right, common_offset(p),
                                         static_cast<int>(p.seqlen_kv));
  params.group = static_cast<int>(p.heads_q / p.heads_kv);
  params.q_blocks = static_cast<int>(p.packed ? attention::packed_slots(p.total_q, p.batch, block_q)
                                              : (p.seqlen_q + block_q - 1) / block_q);
  params.scale_log2 = static_cast<float>(p.scale_log2());
  params.scale = p.softmax_scale;
}

void bind_row_params(RowParams& params, const BackwardProblem& problem,
                     const BackwardArguments& args) {
  host::bind_forward_params(params, problem.forward, args.forward);
  params.d_o.data = args.d_o;
  params.d_lse = problem.has_d_lse ? static_cast<const float*>(args.d_lse) : nullptr;
  params.dq.data = args.dq;
  params.dk.data = args.dk;
  params.dv.data = args.dv;
}

bool needs_option_tiles(const ForwardProblem& p) { return entries_vary(p) || p.softcap > 0; }

bool needs_option_rows(const BackwardProblem& problem, int head_dim) {
  const ForwardProblem& p = problem.forward;
  return needs_option_tiles(p) || p.sinks.present || p.head_dim_qk != head_dim ||
         p.head_dim_v != head_dim;
}

void set_options(Options& options, const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  options.band = p.band;
  if (p.softcap > 0) {
    options.cap = attention::softcap_params(p.softmax_scale, p.softcap);
    options.tanh_rate = 1 / options.cap.cap_log2;
  }
  options.sink_head = p.sinks.head;
  options.d_sink_head = problem.d_sinks.head;
}

void bind_options(Options& options, const BackwardProblem& problem, const BackwardArguments& args,
                  float* sink_terms) {
  options.sinks = problem.forward.sinks.present ? args.forward.sinks : nullptr;
  if (!problem.d_sinks.present) return;
  options.d_sinks = static_cast<float*>(args.d_sinks);
  options.sink_terms = sink_terms;
}

int64_t key_tiles_of_head(const ForwardProblem& p, int block) {
  return p.packed ? attention::packed_slots(p.total_kv, p.batch, block)
                  : (p.seqlen_kv + block - 1) / block;
}

host::TensorLayout tensor_layout(const ForwardProblem& p, const RowStrides& stride, bool queries,
                                 int64_t columns) {
  const int64_t rows =
      queries ? (p.packed ? p.total_q : p.seqlen_q) : (p.packed ? p.total_kv : p.seqlen_kv);
  return {tile_batch(p), queries ? p.heads_q : p.heads_kv, rows, columns, stride.batch, stride.head,
          stride.row};
}

int64_t WorkspaceParts::add(int64_t count) {
  const int64_t begin = end;
  const int64_t bytes = product_of({count, static_cast<int64_t>(sizeof(float))});
  end = sum_of({end, bytes, kWorkspaceAlignment - 1});
  if (end != kTooLarge) end = end / kWorkspaceAlignment * kWorkspaceAlignment;
  return begin;
}

Status load_rows(Launches& launches, const launch::Loader& loader, std::string_view family,
                 std::string_view prefix, std::string_view end) {
  const auto load = [&](launch::Kernel& kernel, std::string_view name) {
    return loader.load(
        kernel, family,
        fmt::format("{}_{}{}", prefix, name, launches.option_rows ? "_options" : ""));
  };
  FLASHCORE_RETURN_IF_ERROR(load(launches.begin, "begin"));
  FLASHCORE_RETURN_IF_ERROR(load(launches.end, end));
  if (!launches.option_rows) return {};
  FLASHCORE_RETURN_IF_ERROR(loader.load(launches.zero_hidden_rows, family, "zero_hidden_rows"));
  return loader.load(launches.add_sink_terms, family, "add_sink_terms");
}

Status zero_hidden_rows(const Launches& launches, const RowParams& p,
                        const launch::Launcher& launcher) {
  if (!is_packed(p)) return {};
  const PackedGradients gradients = {{{p.dq, p.heads_q, p.total_q, p.head_dim_qk, true},
                                      {p.dk, p.heads_kv, p.total_kv, p.head_dim_qk, false},
                                      {p.dv, p.heads_kv, p.total_kv, p.head_dim_v, false}}};
  const int rows = std::max(p.total_q, p.total_kv);
  const auto blocks = static_cast<unsigned int>((rows + kRowThreads - 1) / kRowThreads);
  return launcher.launch(launches.zero_hidden_rows, {.blocks = dim3(blocks, 3)}, p, gradients);
}

Status add_sink_terms(const Launches& launches, const RowParams& p, const Options& options,
                      int block_q, const launch::Launcher& launcher) {
  if (options.sink_terms == nullptr) return {};
  return launcher.launch(launches.add_sink_terms,
                         {.blocks = dim3(static_cast<unsigned int>(p.heads_q))}, p, options,
                         block_q);
}

}  // namespace flashcore::cuda::backward_sm90
