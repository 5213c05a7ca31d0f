// Cuts a run into jobs: (batch entry, KV head, some of its query heads, some queries). Entries with
// few queries are also cut into ranges of keys. With very few rows, several KV heads form a job
// that reads K and V in place (simd/direct-inl.hpp). A row's bits depend only on the ranges of
// keys, and those only on the entry's own lengths and the config, so neither threads nor the batch
// change a result. (A tuning table's configs may depend on the batch, if the options allow that.)
//
//   workspace   | first job and first partial result of each entry | scratch of each thread |
//               | partial results |
#include "cpu/forward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string_view>

#include "cpu/largest.hpp"
#include "cpu/parallel.hpp"
#include "cpu/simd/kernels.hpp"
#include "cpu/simd/tile_job.hpp"
#include "cpu/target.hpp"
#include "kernel/config_text.hpp"
#include "problem/dropout.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cpu {
namespace {

constexpr int64_t kAlignment = 256;
// Entries with at most this many rows in use per KV head are also cut along the keys.
constexpr int64_t kFewRows = 48;
constexpr int64_t kKeysPerSplit = 4096;  // per KV head
constexpr int64_t kMostRows = 384;       // per job, unless a config sets more

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t align(int64_t bytes) { return divide_up(bytes, kAlignment) * kAlignment; }

// Returns whether bf16 products are possible: fp8 caches under a bf16 Q are widened to fp32.
bool is_bf16(const ForwardProblem& p) { return p.dtype == DType::bf16 && p.k_dtype == DType::bf16; }

// Keys per block: their packed K and V fit the second-level cache.
int64_t choose_block_kv(const ForwardProblem& p) {
  const int64_t width = p.head_dim_qk + p.head_dim_v;
  return width <= 640 ? 256 : width <= 1280 ? 128 : 64;
}

// All values of a run that do not depend on the data.
struct ForwardPlan {
  ForwardProblem problem;
  const SimdKernels* kernels = nullptr;
  TileLayout layout;
  int threads = 1;
  int64_t group = 1;          // query heads per KV head
  int64_t heads_per_job = 1;  // heads of one group
  int64_t queries_per_job = 1;
  int64_t keys_per_split = kKeysPerSplit;
  int64_t partial_floats = 0;  // per job
  int64_t scratch_offset = 0;
  int64_t scratch_stride = 0;
  int64_t partial_offset = 0;
  int64_t bytes = 0;

  int64_t chunks() const { return divide_up(group, heads_per_job); }
};

bool has_few_rows(const ForwardProblem& p, int64_t group, int64_t rows_q) {
  return group * rows_q <= kFewRows && p.heads_q > 0;
}

bool is_direct(const ForwardPlan& plan, int64_t len_q) { return plan.group * len_q <= kDirectRows; }

// KV heads of a direct job, and its number of keys per head: in all as many as another job has.
int64_t direct_heads(const ForwardPlan& plan) {
  const int64_t heads = plan.problem.heads_kv;
  return divide_up(heads, divide_up(heads, kDirectHeads));
}
int64_t keys_of_part(const ForwardPlan& plan, bool direct) {
  if (!direct) return plan.keys_per_split;
  const int64_t keys = plan.keys_per_split / direct_heads(plan);
  return divide_up(keys, kLargestBlockKv) * kLargestBlockKv;
}
int64_t parts_of_heads(const ForwardPlan& plan, bool direct) {
  const int64_t heads = plan.problem.heads_kv;
  return direct ? divide_up(heads, direct_heads(plan)) : heads * plan.chunks();
}

// How an entry is cut. The jobs of queries in use come first, [queries from last to
// first][heads][keys]; then the jobs of unused rows.
struct Cut {
  bool direct = false;
  int64_t heads = 0;   // parts of the heads, for queries in use
  int64_t keys = 0;    // keys per part
  int64_t splits = 1;  // parts of the keys
  int64_t blocks = 0;  // parts of the queries in use
  int64_t idle = 0;    // jobs of unused rows

  int64_t live_jobs() const { return heads * blocks * splits; }
  int64_t jobs() const { return live_jobs() + idle; }
  int64_t partials() const { return splits > 1 ? live_jobs() : 0; }
};

Cut cut_of(const ForwardPlan& plan, const Sequence& s) {
  Cut cut;
  cut.direct = is_direct(plan, s.len_q);
  cut.heads = parts_of_heads(plan, cut.direct);
  cut.keys = keys_of_part(plan, cut.direct);
  if (has_few_rows(plan.problem, plan.group, s.len_q)) {
    cut.splits = std::max<int64_t>(1, divide_up(s.len_kv, cut.keys));
  }
  cut.blocks = divide_up(s.len_q, plan.queries_per_job);
  cut.idle = parts_of_heads(plan, false) * divide_up(s.rows_q - s.len_q, plan.queries_per_job);
  return cut;
}

// The maximum of partial results that a run can need.
int64_t most_partials(const ForwardPlan& plan) {
  const ForwardProblem& p = plan.problem;
  const bool own_lengths = p.packed || p.seqlens_q.present;
  const int64_t fewest = own_lengths ? 1 : p.seqlen_q;
  if (!has_few_rows(p, plan.group, fewest)) return 0;
  const auto most = [&](bool direct) -> int64_t {
    const int64_t heads = parts_of_heads(plan, direct), keys = keys_of_part(plan, direct);
    if (p.packed && !p.paging.present) {
      return p.seqlen_kv > keys ? product_of({heads, p.total_kv / keys + p.batch}) : 0;
    }
    const int64_t splits = divide_up(p.seqlen_kv, keys);
    return splits > 1 ? product_of({p.batch, heads, splits}) : 0;
  };
  const int64_t others = is_direct(plan, p.seqlen_q) ? 0 : most(false);
  const int64_t direct = is_direct(plan, fewest) ? most(true) : 0;
  return sum_of({others, direct});
}

// Rows of O over all heads.
int64_t all_rows(const ForwardProblem& p) {
  return product_of({p.packed ? p.total_q : product_of({p.batch, p.seqlen_q}), p.heads_q});
}

// An upper bound of a run's jobs: threads beyond it get no scratch memory.
int64_t most_jobs(const ForwardProblem& p, int64_t keys_per_split) {
  const int64_t splits = divide_up(std::max<int64_t>(1, p.seqlen_kv), keys_per_split);
  return std::max<int64_t>(1, product_of({all_rows(p), splits}));
}

// Rows per job: enough to pay for packing K and V, few enough to give every thread a job.
int64_t choose_rows(const ForwardProblem& p, int threads) {
  int64_t rows = kMostRows;
  while (rows > 48 && all_rows(p) / rows < 8 * threads) rows /= 2;
  return rows;
}

void set_rows(ForwardPlan& plan, int64_t rows) {
  const ForwardProblem& p = plan.problem;
  plan.heads_per_job = std::clamp<int64_t>(plan.group, 1, kFewRows);
  plan.queries_per_job = std::max<int64_t>(1, rows / plan.heads_per_job);
  plan.queries_per_job =
      std::clamp<int64_t>(plan.queries_per_job, 1, std::max<int64_t>(1, p.seqlen_q));
}

// The first job and first partial result of each entry, in the workspace: batch + 1 elements each.
struct Schedule {
  std::span<int64_t> first_job;
  std::span<int64_t> first_partial;
};

Schedule make_schedule(const ForwardPlan& plan, const Arguments& args, std::byte* workspace) {
  const ForwardProblem& p = plan.problem;
  const auto entries = static_cast<size_t>(p.batch) + 1;
  auto* const numbers = reinterpret_cast<int64_t*>(workspace);
  const Schedule schedule{{numbers, entries}, {numbers + entries, entries}};
  int64_t job = 0;
  int64_t partial = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    schedule.first_job[static_cast<size_t>(b)] = job;
    schedule.first_partial[static_cast<size_t>(b)] = partial;
    const Cut cut = cut_of(plan, sequence_of(p, args, b));
    job += cut.jobs();
    partial += cut.partials();
  }
  schedule.first_job.back() = job;
  schedule.first_partial.back() = partial;
  return schedule;
}

class Run {
 public:
  Run(const ForwardPlan& plan, const Arguments& args, std::span<std::byte> workspace)
      : plan_(plan),
        args_(args),
        workspace_(workspace.data()),
        schedule_(make_schedule(plan, args, workspace.data())),
        key_(dropout_key_of(plan.problem, args)) {}

  void all() {
    clear_largest(plan_.problem, args_);
    const int64_t partials = schedule_.first_partial.back();
    in_parallel(schedule_.first_job.back(), [this](int64_t i, std::byte* scratch) {
      const Place place = place_of(i);
      TileJob job = job_at(place, scratch);
      if (place.cut.splits > 1) {
        job.keys.begin = std::max(job.keys.begin, place.split * place.cut.keys);
        job.keys.end = std::min(job.keys.end, (place.split + 1) * place.cut.keys);
        job.partial = partial(place, place.split);
      }
      plan_.kernels->attend(job);
    });
    if (partials == 0) return;
    in_parallel(schedule_.first_job.back(), [this](int64_t i, std::byte* scratch) {
      const Place place = place_of(i);
      if (place.cut.splits == 1 || place.split != 0) return;
      plan_.kernels->merge(job_at(place, scratch), partial(place, 0), place.cut.splits,
                           plan_.partial_floats);
    });
  }

 private:
  struct Place {
    int64_t batch = 0;
    int64_t in_entry = 0;  // index of the job in its entry
    Sequence sequence;
    Cut cut;
    int64_t heads = 0;  // index of the part of the heads
    int64_t split = 0;  // index of the part of the keys
    int64_t first = 0;  // queries [first, last)
    int64_t last = 0;
  };

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

  Place place_of(int64_t i) const {
    const auto after = std::upper_bound(schedule_.first_job.begin(), schedule_.first_job.end(), i);
    Place place;
    place.batch = after - schedule_.first_job.begin() - 1;
    place.in_entry = i - schedule_.first_job[static_cast<size_t>(place.batch)];
    place.sequence = sequence_of(plan_.problem, args_, place.batch);
    place.cut = cut_of(plan_, place.sequence);
    Cut& cut = place.cut;
    const int64_t idle = place.in_entry - cut.live_jobs();
    if (idle < 0) {
      place.split = place.in_entry % cut.splits;
      const int64_t n = place.in_entry / cut.splits;
      place.heads = n % cut.heads;
      // Starts with the last queries, which have the most keys under a causal mask.
      place.first = (cut.blocks - 1 - n / cut.heads) * plan_.queries_per_job;
      place.last = std::min(place.first + plan_.queries_per_job, place.sequence.len_q);
    } else {
      cut.direct = false;
      cut.splits = 1;
      const int64_t heads = parts_of_heads(plan_, false);
      place.heads = idle % heads;
      place.first = place.sequence.len_q + idle / heads * plan_.queries_per_job;
      place.last = std::min(place.first + plan_.queries_per_job, place.sequence.rows_q);
    }
    return place;
  }

  float* partial(const Place& place, int64_t split) const {
    const int64_t number = schedule_.first_partial[static_cast<size_t>(place.batch)] +
                           place.in_entry - place.split + split;
    return reinterpret_cast<float*>(workspace_ + plan_.partial_offset) +
           number * plan_.partial_floats;
  }

  TileJob job_at(const Place& place, std::byte* scratch) const {
    const Sequence& s = place.sequence;
    TileJob job;
    job.problem = &plan_.problem;
    job.arguments = &args_;
    job.layout = &plan_.layout;
    job.scratch = scratch;
    job.sequence = s;
    job.dropout_key = key_;
    job.batch = place.batch;
    job.group = plan_.group;
    job.direct = place.cut.direct;
    if (job.direct) {
      job.head_kv = place.heads * direct_heads(plan_);
      job.head_first = job.head_kv * plan_.group;
      job.heads = std::min(direct_heads(plan_), plan_.problem.heads_kv - job.head_kv) * plan_.group;
    } else {
      const int64_t chunk = place.heads % plan_.chunks();
      job.head_kv = place.heads / plan_.chunks();
      job.head_first = job.head_kv * plan_.group + chunk * plan_.heads_per_job;
      job.heads = std::min(plan_.heads_per_job, plan_.group - chunk * plan_.heads_per_job);
    }
    job.query_first = place.first;
    job.queries = place.last - place.first;
    job.keys = visible_keys(s, plan_.problem.band, job.query_first, job.query_first + job.queries);
    job.first_seen = job.keys.begin;
    job.keys.begin = job.keys.begin / plan_.layout.block_kv * plan_.layout.block_kv;
    return job;
  }

  const ForwardPlan& plan_;
  const Arguments& args_;
  std::byte* workspace_;
  Schedule schedule_;
  PhiloxKey key_;
};

}  // namespace

namespace {

// The names in a config.
constexpr std::string_view kRowsName = "rows", kBlockName = "block_kv", kSplitName = "split",
                           kThreadsName = "threads";

ForwardPlan make_forward_plan(const ForwardProblem& problem, const PlanContext& context) {
  ForwardPlan plan;
  plan.problem = problem;
  plan.kernels = kernels_of(target_for(is_bf16(problem))).forward;
  plan.keys_per_split = config_value(context.config, kSplitName, kKeysPerSplit);
  const int64_t threads = config_value(context.config, kThreadsName, context.threads);
  plan.threads = static_cast<int>(
      std::min<int64_t>({threads, context.threads, most_jobs(problem, plan.keys_per_split)}));
  if (all_rows(problem) == 0) return plan;  // nothing to write
  plan.group = problem.heads_q / problem.heads_kv;
  set_rows(plan, config_value(context.config, kRowsName, choose_rows(problem, plan.threads)));
  const int64_t rows = plan.heads_per_job * plan.queries_per_job;
  const int64_t rows_direct = direct_heads(plan) * std::min(rows, kDirectRows);
  plan.layout =
      plan.kernels->layout(problem, std::max(rows, rows_direct),
                           config_value(context.config, kBlockName, choose_block_kv(problem)));
  // Only entries with few rows have partial results.
  plan.partial_floats =
      divide_up(std::max(std::min(rows, kFewRows), rows_direct) * (2 + plan.layout.width_v), 16) *
      16;
  plan.scratch_offset = align(2 * (problem.batch + 1) * static_cast<int64_t>(sizeof(int64_t)));
  plan.scratch_stride = align(static_cast<int64_t>(plan.layout.bytes));
  plan.partial_offset =
      sum_of({plan.scratch_offset, product_of({plan.threads, plan.scratch_stride})});
  plan.bytes = sum_of(
      {plan.partial_offset, product_of({most_partials(plan), plan.partial_floats, sizeof(float)})});
  // The number of jobs must fit 64 bits, too.
  if (most_jobs(problem, plan.keys_per_split) == kTooLarge) plan.bytes = kTooLarge;
  return plan;
}

}  // namespace

std::string forward_refuses(const ForwardProblem& p, const PlanContext& context) {
  if (kernels_of(target_for(is_bf16(p))).forward == nullptr) {
    return "the processor lacks SSE4.2, wanted at least that";
  }
  if (make_forward_plan(p, context).bytes == kTooLarge) {
    return fmt::format(
        "q: has {} sequences of {} heads, and k has {} rows in each, wanted a workspace of less "
        "than "
        "2^63 bytes",
        p.batch, p.heads_q, p.seqlen_kv);
  }
  return {};
}

std::vector<std::string> forward_candidates(const ForwardProblem& p, const PlanContext& context) {
  std::vector<std::string> names;
  if (all_rows(p) == 0) return names;
  const int64_t group = p.heads_q / p.heads_kv;
  const int64_t own_block = choose_block_kv(p), own_rows = choose_rows(p, context.threads);
  const int64_t most = std::clamp<int64_t>(group, 1, kFewRows) * std::max<int64_t>(1, p.seqlen_q);
  // Names contain both values, so that a name means the same, and gives the same bits, at any number of threads.
  int64_t tried = 0;  // rows of the last job size tried
  for (const int64_t rows : {48, 96, 192, 384, 768}) {
    if (tried >= most) break;
    tried = rows;
    for (const int64_t block : {64, 128, 256}) {
      if (block > 64 && block / 2 >= p.seqlen_kv) continue;
      if (rows == own_rows && block == own_block) continue;
      names.push_back(fmt::format("{}={},{}={}", kRowsName, rows, kBlockName, block));
    }
  }
  const bool may_split = !p.packed && has_few_rows(p, group, p.seqlen_q);
  for (const int64_t keys : {1024, 2048, 8192, 16384}) {
    if (may_split && keys / 2 < p.seqlen_kv)
      names.push_back(fmt::format("{}={}", kSplitName, keys));
  }
  for (int threads = context.threads / 2; threads > 0; threads /= 4) {
    names.push_back(fmt::format("{}={}", kThreadsName, threads));
  }
  return names;
}

PlannedKernel plan_forward(const ForwardProblem& problem, const PlanContext& context) {
  const ForwardPlan plan = make_forward_plan(problem, context);
  if (all_rows(problem) == 0) {
    return {.workspace_bytes = 0,
            .run = [problem](const Arguments& args, std::span<std::byte>, Stream) {
              clear_largest(problem, args);
              return Status();
            }};
  }
  return {.workspace_bytes = static_cast<size_t>(plan.bytes),
          .run = [plan](const Arguments& args, std::span<std::byte> workspace, Stream) {
            Run(plan, args, workspace).all();
            return Status();
          }};
}

}  // namespace flashcore::cpu
