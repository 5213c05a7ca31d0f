// Cuts a backward run into jobs. Each step waits for the one before:
//
//   1  batch entry, query head             delta = dO . O - dLSE, LSE, the sink's gradient
//   2  batch entry, KV head, part of keys  dK, dV, and a part of dQ
//   3  batch entry, query head             dQ: the sum of its parts
//   4  tile of dBias, if requested         the sum over the broadcast dimensions
//
// The cut along the keys depends only on the entry's number of keys, unless a config sets
// it, and every sum has a fixed order. So neither threads nor the batch change a result,
// except for sums over the batch. There are at most kMostParts parts, so memory is linear
// in the sequence.
//   workspace   | delta | LSE | parts of dQ | parts of dSinks | parts of dSlopes |
//               | scratch of each thread |
#include "cpu/backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string_view>

#include "cpu/parallel.hpp"
#include "cpu/simd/backward_job.hpp"
#include "cpu/simd/kernels.hpp"
#include "cpu/target.hpp"
#include "kernel/config_text.hpp"
#include "problem/dropout.hpp"
#include "problem/dtype.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cpu {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kMostParts = 4;  // unless a config sets more

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t align(int64_t bytes) {
  return bytes > kTooLarge - kAlignment ? kTooLarge : divide_up(bytes, kAlignment) * kAlignment;
}

// bf16 products need bf16 factors; dO has O's type.
Target target_of(const ForwardProblem& p) {
  return target_for(p.dtype == DType::bf16 && p.o_dtype == DType::bf16);
}

// Keys per block: their packed K and V, and their gradients, fit the second-level cache.
int64_t choose_block_kv(const ForwardProblem& p) {
  const int64_t width = p.head_dim_qk + p.head_dim_v;
  return width <= 320 ? 256 : width <= 640 ? 128 : 64;
}

// All values of a run that do not depend on the data.
struct BackwardPlan {
  BackwardProblem problem;
  const BackwardKernels* kernels = nullptr;
  BackwardLayout layout;
  int threads = 1;
  int64_t group = 0;   // query heads per KV head
  int64_t rows_q = 0;  // per head, over all entries
  int64_t most_parts = kMostParts;
  int64_t parts = 1;  // most per entry
  int64_t part_stride = 0;
  int64_t lse_offset = 0, dq_offset = 0, sinks_offset = 0, slopes_offset = 0;
  int64_t scratch_offset = 0, scratch_stride = 0;
  int64_t bytes = 0;
};

// Keys per part of an entry: whole blocks.
int64_t keys_per_part(const BackwardPlan& plan, int64_t keys) {
  const int64_t block = plan.layout.block_kv;
  const int64_t blocks = divide_up(std::max<int64_t>(keys, 1), block);
  return divide_up(blocks, std::min(blocks, plan.most_parts)) * block;
}

int64_t parts_of(const BackwardPlan& plan, int64_t keys) {
  return std::max<int64_t>(1, divide_up(keys, keys_per_part(plan, keys)));
}

// The names in a config.
constexpr std::string_view kBlockName = "block_kv", kPartsName = "parts", kThreadsName = "threads";

BackwardPlan make_backward_plan(const BackwardProblem& problem, const PlanContext& context) {
  const ForwardProblem& p = problem.forward;
  BackwardPlan plan;
  plan.problem = problem;
  plan.kernels = kernels_of(target_of(p)).backward;
  // backward_refuses() has checked that kernels exist.
  plan.layout = plan.kernels->layout(  // NOLINT(clang-analyzer-core.NullDereference)
      problem, config_value(context.config, kBlockName, choose_block_kv(p)));
  plan.most_parts = config_value(context.config, kPartsName, kMostParts);
  plan.group = p.heads_q > 0 ? p.heads_q / p.heads_kv : 0;
  plan.rows_q = p.packed ? p.total_q : product_of({p.batch, p.seqlen_q});
  plan.parts =
      std::min(plan.most_parts, divide_up(std::max<int64_t>(p.seqlen_kv, 1), plan.layout.block_kv));
  const int64_t rows = product_of({p.heads_q, plan.rows_q});
  const int64_t floats = align(product_of({rows, sizeof(float)}));
  plan.part_stride = product_of({rows, plan.layout.width_qk});
  plan.lse_offset = floats;
  plan.dq_offset = sum_of({plan.lse_offset, floats});
  plan.sinks_offset =
      sum_of({plan.dq_offset, align(product_of({plan.parts, plan.part_stride, sizeof(float)}))});
  const int64_t heads =
      rows == 0 && product_of({p.batch, p.seqlen_kv}) == 0 ? 0 : product_of({p.batch, p.heads_q});
  plan.slopes_offset = sum_of({plan.sinks_offset, align(product_of({heads, sizeof(double)}))});
  plan.scratch_offset =
      sum_of({plan.slopes_offset, align(product_of({heads, plan.parts, sizeof(double)}))});
  plan.scratch_stride = align(static_cast<int64_t>(plan.layout.bytes));
  const int64_t jobs =
      std::max<int64_t>(1, product_of({p.batch, std::max(p.heads_q, p.heads_kv), plan.parts}));
  const int64_t threads = config_value(context.config, kThreadsName, context.threads);
  plan.threads = static_cast<int>(std::min<int64_t>({threads, context.threads, jobs}));
  plan.bytes = sum_of({plan.scratch_offset, product_of({plan.threads, plan.scratch_stride})});
  return plan;
}

class Run {
 public:
  Run(const BackwardPlan& plan, const BackwardArguments& args, std::span<std::byte> workspace)
      : plan_(plan),
        problem_(plan.problem),
        p_(plan.problem.forward),
        args_(args),
        workspace_(workspace.data()),
        key_(dropout_key_of(p_, args.forward)) {}

  void all() {
    const bool has_rows = plan_.rows_q > 0 && p_.heads_q > 0;
    const bool has_keys =
        p_.heads_kv > 0 && (p_.packed ? p_.total_kv > 0 : p_.batch > 0 && p_.seqlen_kv > 0);
    if (has_rows) {
      in_parallel(p_.batch * p_.heads_q, [this](int64_t n, std::byte* scratch) {
        const BackwardJob job = job_of(n / p_.heads_q, n % p_.heads_q / plan_.group, scratch);
        const double d_sink = plan_.kernels->prepare(job, n % p_.heads_q);
        doubles(plan_.sinks_offset)[n] = d_sink;
      });
    }
    if (has_rows || has_keys) {
      in_parallel(p_.batch * p_.heads_kv * plan_.parts,
                  [this](int64_t n, std::byte* scratch) { part(n, scratch); });
    }
    if (has_rows) {
      in_parallel(p_.batch * p_.heads_q, [this](int64_t n, std::byte* scratch) {
        const BackwardJob job = job_of(n / p_.heads_q, n % p_.heads_q / plan_.group, scratch);
        plan_.kernels->finish(job, n % p_.heads_q, parts_of(plan_, job.keys_in_all),
                              plan_.part_stride);
      });
    }
    if (problem_.d_bias_elements > 0) all_bias();
    if (problem_.d_sinks.present) store_d_sinks(has_rows);
    if (problem_.d_alibi_slopes.present) store_d_slopes(has_rows);
  }

 private:
  // Calls task(i, scratch) with scratch memory that no other thread uses.
  template <class Task>
  void in_parallel(int64_t count, const Task& task) {
    std::atomic<int64_t> next{0};
    const int64_t threads = std::min<int64_t>(plan_.threads, count);
    parallel_for(threads, static_cast<int>(threads), [&](int64_t thread) {
      std::byte* const scratch = workspace_ + plan_.scratch_offset + thread * plan_.scratch_stride;
      for (int64_t i = next++; i < count; i = next++) task(i, scratch);
    });
  }

  float* floats(int64_t offset) const { return reinterpret_cast<float*>(workspace_ + offset); }
  double* doubles(int64_t offset) const { return reinterpret_cast<double*>(workspace_ + offset); }

  int64_t rows_kv_of(int64_t b) const {
    if (!p_.packed) return p_.seqlen_kv;
    const int32_t* const begins = args_.forward.cu_seqlens_kv;
    return begins[p_.cu_seqlens_kv.at(b + 1, 0)] - begins[p_.cu_seqlens_kv.at(b, 0)];
  }

  BackwardJob job_of(int64_t b, int64_t head_kv, std::byte* scratch) const {
    BackwardJob job;
    job.tile.problem = &p_;
    job.tile.arguments = &args_.forward;
    job.tile.scratch = scratch;
    job.tile.sequence = sequence_of(p_, args_.forward, b);
    job.tile.dropout_key = key_;
    job.tile.batch = b;
    job.tile.head_kv = head_kv;
    job.tile.head_first = head_kv * plan_.group;
    job.tile.heads = plan_.group;
    job.problem = &problem_;
    job.arguments = &args_;
    job.layout = &plan_.layout;
    job.keys_in_all = rows_kv_of(b);
    const int64_t row = p_.packed ? job.tile.sequence.q_begin : b * p_.seqlen_q;
    job.delta = floats(0) + row;
    job.lse = floats(plan_.lse_offset) + row;
    job.head_stride = plan_.rows_q;
    job.dq = floats(plan_.dq_offset) + row * plan_.layout.width_qk;
    return job;
  }

  void part(int64_t n, std::byte* scratch) const {
    const int64_t number = n % plan_.parts;
    const int64_t b = n / plan_.parts / p_.heads_kv;
    BackwardJob job = job_of(b, n / plan_.parts % p_.heads_kv, scratch);
    if (number >= parts_of(plan_, job.keys_in_all)) return;
    const int64_t keys = keys_per_part(plan_, job.keys_in_all);
    job.keys = {number * keys, std::min((number + 1) * keys, job.keys_in_all)};
    job.dq += number * plan_.part_stride;
    const int64_t width = plan_.layout.width_qk;
    for (int64_t h = job.tile.head_first; h < job.tile.head_first + plan_.group; ++h) {
      std::fill_n(job.dq + h * job.head_stride * width, job.tile.sequence.rows_q * width, 0.0f);
    }
    if (problem_.d_alibi_slopes.present) {
      job.d_slopes = doubles(plan_.slopes_offset) + (b * plan_.parts + number) * p_.heads_q;
      std::fill_n(job.d_slopes + job.tile.head_first, plan_.group, 0.0);
    }
    plan_.kernels->attend(job);
  }

  void all_bias() {
    const int64_t* const extents = problem_.d_bias_extents;
    const int64_t query_tiles = extents[2] == 1 ? 1 : divide_up(extents[2], kBlockQ);
    const int64_t key_tiles = extents[3] == 1 ? 1 : divide_up(extents[3], plan_.layout.block_kv);
    in_parallel(extents[0] * extents[1] * query_tiles * key_tiles,
                [&](int64_t n, std::byte* scratch) {
                  BiasTile tile{0, p_.seqlen_q, 0, p_.seqlen_kv};
                  const int64_t key = n % key_tiles, query = n / key_tiles % query_tiles;
                  if (extents[3] != 1) {
                    tile.key_first = key * plan_.layout.block_kv;
                    tile.key_last = std::min(tile.key_first + plan_.layout.block_kv, extents[3]);
                  }
                  if (extents[2] != 1) {
                    tile.query_first = query * kBlockQ;
                    tile.query_last = std::min(tile.query_first + kBlockQ, extents[2]);
                  }
                  const int64_t owner = n / key_tiles / query_tiles;
                  bias_tile(owner / extents[1], owner % extents[1], tile, scratch);
                });
  }

  void bias_tile(int64_t batch, int64_t head, const BiasTile& tile, std::byte* scratch) const {
    const int64_t* const extents = problem_.d_bias_extents;
    const int64_t stride = plan_.layout.block_kv;
    auto* const sums = reinterpret_cast<double*>(scratch + plan_.layout.d_bias);
    std::fill_n(sums, kBlockQ * stride, 0.0);
    const int64_t last_batch = extents[0] == 1 ? p_.batch : batch + 1;
    const int64_t last_head = extents[1] == 1 ? p_.heads_q : head + 1;
    for (int64_t b = batch; b < last_batch; ++b) {
      for (int64_t h = head; h < last_head; ++h) {
        plan_.kernels->add_to_bias(job_of(b, h / plan_.group, scratch), h, tile);
      }
    }
    const int64_t rows = extents[2] == 1 ? 1 : tile.query_last - tile.query_first;
    const int64_t columns = extents[3] == 1 ? 1 : tile.key_last - tile.key_first;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        store_element(problem_.d_bias.dtype, args_.d_bias,
                      problem_.d_bias.at(batch, head, tile.query_first + i, tile.key_first + j),
                      sums[i * stride + j]);
      }
    }
  }

  void store_d_sinks(bool has_rows) const {
    for (int64_t h = 0; h < p_.heads_q; ++h) {
      double sum = 0;
      for (int64_t b = 0; has_rows && b < p_.batch; ++b) {
        sum += doubles(plan_.sinks_offset)[b * p_.heads_q + h];
      }
      store_element(problem_.d_sinks_dtype, args_.d_sinks, problem_.d_sinks.at(0, h), sum);
    }
  }

  void store_d_slopes(bool has_rows) const {
    const int64_t entries = p_.heads_q > 0 ? problem_.d_alibi_slopes_elements / p_.heads_q : 0;
    for (int64_t entry = 0; entry < entries; ++entry) {
      const int64_t first = entries > 1 ? entry : 0;
      const int64_t last = entries > 1 ? entry + 1 : p_.batch;
      for (int64_t h = 0; h < p_.heads_q; ++h) {
        double sum = 0;
        for (int64_t b = first; has_rows && b < last; ++b) {
          for (int64_t n = 0; n < parts_of(plan_, rows_kv_of(b)); ++n) {
            sum += doubles(plan_.slopes_offset)[(b * plan_.parts + n) * p_.heads_q + h];
          }
        }
        store_element(problem_.d_alibi_slopes_dtype, args_.d_alibi_slopes,
                      problem_.d_alibi_slopes.at(entry, h), sum);
      }
    }
  }

  const BackwardPlan& plan_;
  const BackwardProblem& problem_;
  const ForwardProblem& p_;
  const BackwardArguments& args_;
  std::byte* workspace_;
  PhiloxKey key_;
};

}  // namespace

std::string backward_refuses(const BackwardProblem& problem, const PlanContext& context) {
  const ForwardProblem& p = problem.forward;
  if (kernels_of(target_of(p)).backward == nullptr) {
    return "the processor lacks SSE4.2, wanted at least that";
  }
  if (make_backward_plan(problem, context).bytes == kTooLarge) {
    return fmt::format(
        "q: has {} sequences of {} heads, and k has {} rows in each, wanted a workspace of less "
        "than 2^63 bytes",
        p.batch, p.heads_q, p.seqlen_kv);
  }
  return {};
}

std::vector<std::string> backward_candidates(const BackwardProblem& problem,
                                             const PlanContext& context) {
  std::vector<std::string> names;
  const ForwardProblem& p = problem.forward;
  const int64_t own_block = choose_block_kv(p);
  for (const int64_t block : {64, 128, 256}) {
    if (block > 64 && block / 2 >= p.seqlen_kv) continue;
    const int64_t blocks = divide_up(std::max<int64_t>(p.seqlen_kv, 1), block);
    for (const int64_t parts : {1, 2, 4, 8}) {
      if (parts > 1 && parts / 2 >= blocks) continue;
      std::string name;
      if (block != own_block) name = fmt::format("{}={}", kBlockName, block);
      if (parts != kMostParts) {
        name += fmt::format("{}{}={}", name.empty() ? "" : ",", kPartsName, parts);
      }
      if (!name.empty()) names.push_back(std::move(name));
    }
  }
  for (int threads = context.threads / 2; threads > 0; threads /= 4) {
    names.push_back(fmt::format("{}={}", kThreadsName, threads));
  }
  return names;
}

PlannedBackward plan_backward(const BackwardProblem& problem, const PlanContext& context) {
  const BackwardPlan plan = make_backward_plan(problem, context);
  return {.workspace_bytes = static_cast<size_t>(plan.bytes),
          .run = [plan](const BackwardArguments& args, std::span<std::byte> workspace, Stream) {
            Run(plan, args, workspace).all();
            return Status();
          }};
}

}  // namespace flashcore::cpu
