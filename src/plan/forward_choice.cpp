#include "plan/forward_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/convert/fp8/layout.hpp"
#include "cuda/decode_sm90/stream_kv/config.hpp"
#include "cuda/decode_sm90/stream_kv/schedule.hpp"
#include "cuda/forward_fp8_sm90/throughput/config.hpp"
#include "cuda/forward_sm80/latency/work.hpp"
#include "cuda/forward_sm80/throughput/supports.hpp"
#include "cuda/forward_sm80/throughput/work.hpp"
#include "cuda/forward_sm90/latency/work.hpp"
#include "cuda/forward_sm90/latency_wide/work.hpp"
#include "cuda/forward_sm90/throughput/config.hpp"
#include "cuda/forward_sm90/throughput/tiles.hpp"
#include "cuda/mla_sm90/latent/supports.hpp"
#include "plan/device.hpp"
#include "problem/entries.hpp"
#include "problem/sizes.hpp"

namespace flashcore {
namespace {

namespace sm80 = cuda::forward_sm80;
namespace sm90 = cuda::forward_sm90;
using cuda::decode_sm90::stream_kv::divide_up, cuda::decode_sm90::stream_kv::kGranule;
using sm80::throughput::splits_keys;
using tuning::predicted_us, tuning::Tuning;

constexpr std::string_view kUnmeasured = "the problem is larger than those it was measured on";

// Why a time is not known, or empty.
std::string unpredicted(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant)
    return "batch_invariant: is set, and the choice depends on the batch";
  if (entries_vary(p))
    return "sequences have lengths or diagonals of their own, so its time cannot be predicted";
  return {};
}

std::string with_provenance(const std::string& sentence, const Tuning& tuning) {
  const std::string provenance = tuning.provenance();
  return provenance.empty() ? sentence : sentence + " (" + provenance + ")";
}

const tuning::Rules& rules_for(const DeviceInfo& device) {
  return tuning::tuning_of(device).table->rules;
}

// Where fp8 products take each score twice (docs/forward-fp8.md), and a conversion gives what they give.
bool is_faster_as_bf16(const ForwardProblem& p, const tuning::Rules& rules) {
  if (p.dtype != DType::f8e4m3 || p.mixes_fp8() || p.v_transposed) return false;
  const cuda::convert::fp8::Layout layout = cuda::convert::fp8::layout_of(p);
  if (layout.dtype != DType::bf16 || layout.converts_o || p.amax_s.present) return false;
  if (p.head_dim_v <= rules.fp8_as_bf16_above_head_dim) return false;
  if (std::min(p.seqlen_q, p.seqlen_kv) < rules.fp8_as_bf16_from_rows) return false;
  const bool whole = p.band.left < 0 && p.band.right <= 0;
  return whole && !p.packed && !entries_vary(p) && !p.bias.present && !p.mask.present &&
         !p.alibi_slopes.present && !p.sinks.present && !(p.softcap > 0) && p.dropout_p == 0;
}

// A kernel that does not split the keys, where caches are in pages. A tile of it takes as long as
// decode_sm80 takes for `rows` rows a head, so tiles that are emptier, or leave multiprocessors idle, are
// decode_sm80's. Measured with 8192 keys, 16 to 256 queries and 1 and 4 sequences: docs/decode.md.
std::string paged_declines(const ForwardProblem& p, const PlanContext& context, int64_t block_q,
                           int64_t tiles_at_once, int64_t rows) {
  const int64_t queries = p.packed ? p.total_q : p.batch * p.seqlen_q;
  const int64_t entries = std::max<int64_t>(p.batch, 1);
  const int64_t tiles = p.heads_q * entries * ((queries / entries + block_q - 1) / block_q);
  const int64_t wanted = rows * std::max(tiles, tiles_at_once * context.device.multiprocessors);
  if (p.heads_q * queries >= wanted) return {};
  return fmt::format("q: has {} rows in all heads, wanted {}: it does not split keys",
                     p.heads_q * queries, wanted);
}

// It pads head dimensions to 128, and is not for those that need not be.
bool is_wide(const ForwardProblem& p) { return std::max(p.head_dim_qk, p.head_dim_v) > 64; }

double us_of_row(const ForwardProblem& p, const Tuning& tuning, int row) {
  const auto& config = sm90::throughput::kConfigs[static_cast<size_t>(row)];
  return predicted_us(tuning, p, sm90::throughput::work_unit(config));
}

double throughput_us(const ForwardProblem& p, const Tuning& tuning, int64_t shared_memory,
                     Throughput kernel) {
  if (kernel == Throughput::sm80) {
    return predicted_us(tuning, p, sm80::throughput::work_unit(p, shared_memory));
  }
  const int row = sm90_tile_choice(p, tuning);
  return row < 0 ? std::numeric_limits<double>::infinity() : us_of_row(p, tuning, row);
}

// ---- decode_sm90, as if all sequences were as long as the longest

constexpr int64_t kMostDecodeColumns = 128;
constexpr int64_t kDecodeTile = cuda::decode_sm90::stream_kv::kConfigs.back().rows();

// One row of a head dimension that decode_sm90 does not have.
bool is_wide_decode(const ForwardProblem& p, const PlanContext& context) {
  return !context.batch_invariant && !p.packed && p.seqlen_q == 1 &&
         std::max(p.head_dim_qk, p.head_dim_v) > kMostDecodeColumns;
}
bool has_idle_sms(const ForwardProblem& p, const PlanContext& context) {
  return product_of({p.batch, p.heads_kv}) < context.device.multiprocessors;
}

int64_t decode_rows(const ForwardProblem& p) {
  return p.heads_kv > 0 ? p.heads_q / p.heads_kv * p.seqlen_q : 0;
}

int64_t most_decode_rows(const ForwardProblem& p, const Tuning& tuning) {
  return entries_vary(p) ? kDecodeTile : tuning.table->rules.decode_most_rows;
}

int64_t seen_keys(const ForwardProblem& p) {
  return p.band.left < 0 ? p.seqlen_kv : std::min(p.seqlen_kv, p.band.left + p.seqlen_q);
}

double decode_read_us(const ForwardProblem& p, const Tuning& tuning) {
  const int64_t columns = p.head_dim_qk + p.head_dim_v;
  const auto bytes = static_cast<int64_t>(size_of(p.k_dtype)) *
                     product_of({p.batch, p.heads_kv, seen_keys(p), columns});
  return static_cast<double>(bytes) / tuning.bytes_per_us;
}

// It reads every key once and, at the same time, computes it for every tile of rows.
double sm90_decode_us(const ForwardProblem& p, const Tuning& tuning) {
  const tuning::Rules& rules = tuning.table->rules;
  const int64_t tiles = divide_up(decode_rows(p), kDecodeTile);
  const int64_t granules = (divide_up(seen_keys(p), kGranule) + rules.decode_end_granules) * tiles;
  const double granule_us = is_wide(p) ? rules.decode_granule_us : rules.decode_narrow_us;
  const double compute_us = tuning.time_scale * granule_us *
                            static_cast<double>(product_of({p.batch, p.heads_kv, granules})) /
                            static_cast<double>(tuning.multiprocessors);
  const double begin_us = tiles > 1 ? rules.decode_tiles_us : rules.decode_begin_us;
  return tuning.time_scale * begin_us + std::max(decode_read_us(p, tuning), compute_us);
}

}  // namespace

Tuning tuning_for(const DeviceInfo& device) {
  if (tuning::has_own_table(device)) return tuning::tuning_of(device);
  return tuning::tuning_of(device, device_speed(device));
}

LatencyChoice sm90_latency_choice(const ForwardProblem& p, const Tuning& tuning,
                                  int64_t shared_memory, Throughput next) {
  LatencyChoice choice{
      .latency_us = predicted_us(tuning, p, sm90::latency::work_unit(p, tuning.multiprocessors)),
      .throughput_us = throughput_us(p, tuning, shared_memory, next),
      .margin = tuning.margin(),
      .is_measured = is_measured(tuning, p)};
  if (is_wide(p)) choice.latency_wide_us = predicted_us(tuning, p, sm90::latency_wide::kWorkUnit);
  return choice;
}

LatencyChoice sm80_latency_choice(const ForwardProblem& p, const Tuning& tuning,
                                  int64_t shared_memory) {
  return {.latency_us = predicted_us(
              tuning, p, sm80::latency::work_unit(p, tuning.multiprocessors, shared_memory)),
          .throughput_us = throughput_us(p, tuning, shared_memory, Throughput::sm80),
          .margin = tuning.margin(),
          .is_measured = is_measured(tuning, p)};
}

int sm90_tile_choice(const ForwardProblem& p, const Tuning& tuning) {
  const std::vector<int> rows = sm90::throughput::tile_candidates(p);
  if (rows.size() < 2) return rows.empty() ? -1 : rows[0];
  // Where memory is the limit of several, the smallest.
  const auto cost = [&](int row) {
    return std::pair(us_of_row(p, tuning, row),
                     sm90::throughput::kConfigs[static_cast<size_t>(row)].block_q());
  };
  return *std::min_element(rows.begin(), rows.end(),
                           [&](int a, int b) { return cost(a) < cost(b); });
}

int choose_sm90_tile(const ForwardProblem& seen, const DeviceInfo& device) {
  return sm90_tile_choice(seen, tuning_for(device));
}

// Head dimension 256 in src/tuning/gpus/h200/few_queries.json.
std::string sm80_throughput_declines(const ForwardProblem& p, const PlanContext& context) {
  constexpr int64_t kFewestKeys = 1024;
  if (!is_wide_decode(p, context) || !has_idle_sms(p, context) || p.seqlen_kv < kFewestKeys) {
    return {};
  }
  return "q: has one row, and decode_sm80 splits the keys and reads them once for all heads of a "
         "group";
}

std::string sm90_throughput_declines(const ForwardProblem& p, const PlanContext& context) {
  if (std::string why = sm80_throughput_declines(p, context); !why.empty()) return why;
  if (is_wide_decode(p, context) && p.heads_q > p.heads_kv && !has_idle_sms(p, context)) {
    return "q: has one row, and forward_sm80_throughput reads keys once for all heads of a group";
  }
  // It is twice as fast as forward_sm80_throughput: a GPU that is half full is no reason to split.
  const int64_t heads = p.batch * (p.seqlen_q == 1 ? p.heads_kv : p.heads_q);
  if (!splits_keys(p, context) || 4 * heads > context.device.multiprocessors) return {};
  return fmt::format(
      "q: has {} rows and k {}, which keep few SMs busy; forward_sm80_throughput "
      "splits "
      "the keys",
      p.seqlen_q, p.seqlen_kv);
}

std::string sm90_options_declines(const ForwardProblem& p, const PlanContext& context) {
  // 32 sequences of 16 heads and 128 rows, head dimension 64: 36 us, and 25 where bytes are read.
  constexpr int64_t kFewestMaskedKeys = 129;
  if (p.mask.present && p.seqlen_kv < kFewestMaskedKeys) {
    return fmt::format("mask: has {} keys, wanted {}: packing it would take too long", p.seqlen_kv,
                       kFewestMaskedKeys);
  }
  return sm90_throughput_declines(p, context);
}

std::string sm90_latency_declines(const ForwardProblem& p, const PlanContext& context,
                                  const Variant& sm90_throughput, LatencyKernel kernel) {
  if (std::string why = unpredicted(p, context); !why.empty()) return why;
  const bool takes = refusal_of(sm90_throughput, p, context).empty() &&
                     (!sm90_throughput.declines || sm90_throughput.declines(p, context).empty());
  const Tuning tuning = tuning_for(context.device);
  const LatencyChoice choice =
      sm90_latency_choice(p, tuning, context.device.shared_memory_per_block,
                          takes ? Throughput::sm90 : Throughput::sm80);
  if (kernel == LatencyKernel::latency ? choice.is_latency() : choice.is_latency_wide()) return {};
  if (!choice.is_measured) return std::string(kUnmeasured);
  const std::string wide =
      std::isfinite(choice.latency_wide_us)
          ? fmt::format(", forward_sm90_latency:wide {:.1f}", choice.latency_wide_us)
          : "";
  return with_provenance(
      fmt::format("forward_sm90_latency would take about {:.1f} us{}, the next kernel {:.1f}",
                  choice.latency_us, wide, choice.throughput_us),
      tuning);
}

std::string sm80_latency_declines(const ForwardProblem& p, const PlanContext& context) {
  if (std::string why = unpredicted(p, context); !why.empty()) return why;
  if (splits_keys(p, context))
    return "few queries against many keys: forward_sm80_throughput splits the keys among several "
           "blocks";
  const Tuning tuning = tuning_for(context.device);
  const LatencyChoice choice =
      sm80_latency_choice(p, tuning, context.device.shared_memory_per_block);
  if (choice.is_latency()) return {};
  if (!choice.is_measured) return std::string(kUnmeasured);
  return with_provenance(fmt::format("would take about {:.1f} us, forward_sm80_throughput {:.1f}",
                                     choice.latency_us, choice.throughput_us),
                         tuning);
}

std::string sm90_latent_declines(const ForwardProblem& p, const PlanContext& context) {
  constexpr int64_t kRows = 16;  // of a tile of decode_sm80
  if (context.batch_invariant) {
    return "batch_invariant: is set, and it does not compute every batch";
  }
  const int64_t most = rules_for(context.device).latent_tiles_of_16_rows;
  const int64_t rows = product_of({p.seqlen_q, p.heads_q});
  const int64_t tiles = cuda::mla_sm90::latent::tile_count(p);
  if (tiles <= most * ((rows + kRows - 1) / kRows)) return {};
  return fmt::format("q: has {} queries of {}, and each takes as long as 64 heads", p.seqlen_q,
                     p.heads_q == 1 ? "1 head" : fmt::format("{} heads", p.heads_q));
}

// docs/decode.md has the times.
std::string sm90_decode_declines(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant) {
    return "batch_invariant: is set, and it does not compute every batch";
  }
  if (p.paging.present || p.cache_leftpad.present || p.k_dtype != p.dtype) return {};
  const Tuning tuning = tuning_for(context.device);
  const int64_t rows = decode_rows(p), most = most_decode_rows(p, tuning);
  if (rows > most) {
    return fmt::format(
        "q: has {} rows of a key/value head, wanted at most {}: keys are read again for each {}",
        rows, most, kDecodeTile);
  }
  if (entries_vary(p)) return {};  // nothing is known of their lengths
  const LatencyChoice others =
      sm90_latency_choice(p, tuning, context.device.shared_memory_per_block, Throughput::sm90);
  // A throughput kernel that splits the keys is slower.
  const double next = others.is_latency()        ? others.latency_us
                      : others.is_latency_wide() ? others.latency_wide_us
                      : splits_keys(p, context)  ? std::numeric_limits<double>::infinity()
                                                 : others.throughput_us;
  constexpr double kReads = 1.05;  // of the least time for keys: no kernel reads faster
  const double next_us = std::max(next, kReads * decode_read_us(p, tuning));
  const double us = sm90_decode_us(p, tuning);
  if (us <= next_us) return {};
  return with_provenance(
      fmt::format("would take about {:.1f} us, the next kernel {:.1f}", us, next_us), tuning);
}

std::string fp8_declines(const ForwardProblem& p, const PlanContext& context) {
  const tuning::GpuTable& measured = *tuning::tuning_of(context.device).table;
  if (context.device.compute_capability != measured.compute_capability || context.batch_invariant) {
    return {};
  }
  if (!is_faster_as_bf16(p, measured.rules)) return {};
  return fmt::format("q: has {} rows of head dimension {}, and a conversion to bf16 is faster",
                     p.seqlen_q, p.head_dim_qk);
}

std::string converted_by_name(const ForwardProblem& p, const PlanContext& context) {
  if (p.mixes_fp8() || is_faster_as_bf16(p, rules_for(context.device))) return {};
  return fmt::format("q: is {}, as k and v are, for which it runs only by name",
                     to_string(p.dtype));
}

std::string sm90_fp8_192x64_declines(const ForwardProblem& p, const PlanContext& context) {
  namespace fp8 = cuda::forward_fp8_sm90::throughput;
  if (context.batch_invariant)
    return "batch_invariant: is set, and whether it gains depends on the batch";
  const tuning::Rules& rules = rules_for(context.device);
  const fp8::Config& config = fp8::kConfigs[fp8::k192x64];
  const int64_t heads = product_of({p.batch, p.heads_q});
  const auto share = [&](const fp8::Config& one) {
    return fp8::used_share(one, p.seqlen_q, heads, context.device.multiprocessors);
  };
  const double gain = p.band.right >= 0 ? rules.gain_of_192x64_on_diagonal : rules.gain_of_192x64;
  const fp8::Config& other =
      fp8::kConfigs[static_cast<size_t>(fp8::choose_config(config.head_dim))];
  if (share(config) * gain > share(other)) return {};
  return fmt::format("q: has {} rows of {} heads, which use less of the GPU in tiles of {}",
                     p.seqlen_q, heads, config.block_q());
}

std::string sm90_paged_declines(const ForwardProblem& p, const PlanContext& context) {
  constexpr int64_t kTileQueries = 128;
  if (context.batch_invariant) return {};  // the choice must not depend on the batch
  return paged_declines(p, context, kTileQueries, 1, rules_for(context.device).paged_rows);
}

std::string sm80_paged_declines(const ForwardProblem& p, const PlanContext& context) {
  if (context.batch_invariant) {
    return "batch_invariant: is set, and how many queries there are depends on the batch";
  }
  const WorkUnit unit = sm80::throughput::work_unit(p, context.device.shared_memory_per_block);
  return paged_declines(p, context, unit.block_q, unit.units_at_once,
                        rules_for(context.device).sm80_paged_rows);
}

}  // namespace flashcore
