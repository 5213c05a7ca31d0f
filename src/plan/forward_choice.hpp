// Which forward kernel or tile of a GPU is fastest, by the cost model of src/tuning: what makes a
// kernel leave a problem that it computes to another. By what is known without data, and not by the
// batch where that is forbidden.
#pragma once

#include <limits>
#include <string>

#include "kernel/kernel.hpp"
#include "problem/backward.hpp"
#include "problem/problem.hpp"
#include "tuning/gpu.hpp"

namespace flashcore {

// The constants for a device; for one that was not measured, with its clocks where it is there.
tuning::Tuning tuning_for(const DeviceInfo& device);

// ---- between kernels: each is one sentence, or empty

// forward_sm80_throughput: one row of a wide head, where decode_sm80 splits the keys.
std::string sm80_throughput_declines(const ForwardProblem& p, const PlanContext& context);
// forward_sm90_throughput: likewise, and where forward_sm80_throughput splits keys, or reads them once for a group.
std::string sm90_throughput_declines(const ForwardProblem& p, const PlanContext& context);
// forward_sm90_throughput:options: likewise, and where forward_sm80_throughput is faster.
std::string sm90_options_declines(const ForwardProblem& p, const PlanContext& context);

enum class LatencyKernel { latency, wide };

// forward_sm90_latency or its variant wide, where it is not the fastest of the two and of
// what runs where neither does. `sm90_throughput`: that is it, if it takes the problem.
std::string sm90_latency_declines(const ForwardProblem& p, const PlanContext& context,
                                  const Variant& sm90_throughput, LatencyKernel kernel);

// forward_sm80_latency leaves a problem to forward_sm80_throughput; the kernels for Hopper come before both.
std::string sm80_latency_declines(const ForwardProblem& p, const PlanContext& context);

// mla_sm90: where a query has so few heads that decode_sm80, whose tiles have rows of several queries, reads the
// keys fewer times. Batch invariant as decode_sm90.
std::string sm90_latent_declines(const ForwardProblem& p, const PlanContext& context);

// decode_sm90: where others compute the problem too, and are predicted to be faster. Batch
// invariant, decode_sm80 takes batches of every size.
std::string sm90_decode_declines(const ForwardProblem& p, const PlanContext& context);

// The kernels that take fp8 as it is, where long rows are faster as bf16.
std::string fp8_declines(const ForwardProblem& p, const PlanContext& context);

// forward_converted:fp8, where Q, K and V have one type, which other kernels compute within the operator's meaning.
std::string converted_by_name(const ForwardProblem& p, const PlanContext& context);

// forward_fp8_sm90:192x64, three consumers of 64 queries each: whether they gain over two, where the last round
// has few blocks, and the last tile of a head few queries.
std::string sm90_fp8_192x64_declines(const ForwardProblem& p, const PlanContext& context);

// Caches in pages under more rows than decode_sm90 takes: whether there are too few of them for a
// kernel that does not split the keys.
std::string sm90_paged_declines(const ForwardProblem& p, const PlanContext& context);

// Caches below Hopper, and those that forward_sm90_throughput:paged refuses: whether queries are so few that decode_sm80,
// which packs the query heads of a group into its tiles and splits the keys, is taken to be faster.
std::string sm80_paged_declines(const ForwardProblem& p, const PlanContext& context);

// ---- the same as times

enum class Throughput { sm80, sm90 };

// Predicted microseconds. latency_wide: infinite where it is no candidate.
struct LatencyChoice {
  double latency_us, throughput_us;
  double latency_wide_us = std::numeric_limits<double>::infinity();
  double margin = 0;  // by which part the throughput kernel's time must be undercut
  bool is_measured = true;

  bool is_latency() const { return is_faster() && latency_us <= latency_wide_us; }
  bool is_latency_wide() const { return is_faster() && latency_wide_us < latency_us; }

 private:
  bool is_faster() const {
    const double best = latency_us <= latency_wide_us ? latency_us : latency_wide_us;
    return is_measured && best * (1 + margin) < throughput_us;
  }
};

LatencyChoice sm90_latency_choice(const ForwardProblem& p, const tuning::Tuning& tuning,
                                  int64_t shared_memory, Throughput next);
LatencyChoice sm80_latency_choice(const ForwardProblem& p, const tuning::Tuning& tuning,
                                  int64_t shared_memory);

// ---- between tiles

// forward_sm90_throughput's: index into its kConfigs, or -1 when a head dimension is too large.
int sm90_tile_choice(const ForwardProblem& p, const tuning::Tuning& tuning);
int choose_sm90_tile(const ForwardProblem& seen, const DeviceInfo& device);

}  // namespace flashcore
