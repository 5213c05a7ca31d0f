#include "cuda/backward_sm80/general/supports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cuda/backward_sm80/general/config.hpp"
#include "cuda/host/launch_limits.hpp"
#include "kernel/device_code.hpp"
#include "problem/sizes.hpp"

namespace flashcore::cuda::backward_sm80::general {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // blocks of a launch
constexpr int kRowsABlock = 8;                                  // of rows.cu

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

std::string refuse_types(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  if (!is_float(p.dtype)) {
    return fmt::format("q: dtype is {}, wanted f16, bf16 or f32", to_string(p.dtype));
  }
  if (!is_float(p.o_dtype)) {
    return fmt::format("o: dtype is {}, wanted f16, bf16 or f32", to_string(p.o_dtype));
  }
  if (p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  if (problem.has_d_lse && problem.d_lse_dtype != DType::f32) {
    return fmt::format("d_lse: dtype is {}, wanted f32", to_string(problem.d_lse_dtype));
  }
  const struct {
    const char* name;
    bool present;
    DType dtype;
  } outputs[] = {{"dq", true, problem.dq_dtype},
                 {"dk", true, problem.dk_dtype},
                 {"dv", true, problem.dv_dtype},
                 {"d_bias", problem.d_bias.present, problem.d_bias.dtype},
                 {"d_sinks", problem.d_sinks.present, problem.d_sinks_dtype},
                 {"d_alibi_slopes", problem.d_alibi_slopes.present, problem.d_alibi_slopes_dtype}};
  for (const auto& [name, present, dtype] : outputs) {
    if (present && dtype == DType::f64) {
      return fmt::format("{}: dtype is f64, wanted f16, bf16 or f32", name);
    }
  }
  return {};
}

int64_t tiles(int64_t rows, int block) { return (rows + block - 1) / block; }

// Tiles of an output that blocks count in 32 bits.
std::string refuse_count(std::string_view name, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t blocks = product_of({a, b, c, d});
  if (blocks <= kMost) return {};
  return fmt::format("{}: makes {} tiles, wanted at most {}", name,
                     blocks == kTooLarge ? "too many" : std::to_string(blocks), kMost);
}

std::string refuse_sizes(const BackwardProblem& problem) {
  const ForwardProblem& p = problem.forward;
  const int64_t head_dim = std::max(p.head_dim_qk, p.head_dim_v);
  const int index = config_index(computes_in_fp32(problem), head_dim);
  if (index < 0) {
    return fmt::format("{}: head dimension is {}, wanted at most {}",
                       p.head_dim_qk >= p.head_dim_v ? "q" : "v", head_dim, kLargestHeadDim);
  }
  if (std::string refusal = host::refuse_rows(p); !refusal.empty()) return refusal;
  const Config& config = kConfigs[static_cast<size_t>(index)];
  const int64_t rows = p.packed ? p.total_q : p.seqlen_q, batch = p.packed ? 1 : p.batch;
  if (std::string refusal = refuse_count("q", batch, p.heads_q, tiles(rows, kRowsABlock), 1);
      !refusal.empty()) {
    return refusal;
  }
  if (std::string refusal = host::refuse_tiles(p, config.block_x()); !refusal.empty()) {
    return refusal;
  }
  const int64_t key_rows = p.packed ? std::max(p.total_kv, p.seqlen_kv) : p.seqlen_kv;
  if (std::string refusal = refuse_count("k", p.batch, p.heads_kv, tiles(key_rows, kRowsABlock), 1);
      !refusal.empty()) {
    return refusal;
  }
  if (!problem.d_bias.present) return {};
  const int64_t* const extents = problem.d_bias_extents;
  const Config bias = config_of(index, Features::all);
  return refuse_count("d_bias", extents[0], extents[1], tiles(extents[2], bias.block_x()),
                      tiles(extents[3], bias.block_y));
}

}  // namespace

bool computes_in_fp32(const BackwardProblem& problem) {
  return problem.forward.dtype == DType::f32 || problem.forward.o_dtype != problem.forward.dtype;
}

std::string refusal(const BackwardProblem& problem, const DeviceInfo& device,
                    std::string_view targets) {
  if (device.compute_capability < 80) {
    return fmt::format("device: compute capability is {}, wanted 8.0 or later",
                       capability_text(device.compute_capability));
  }
  if (std::string refusal = refuse_code(targets, device.compute_capability); !refusal.empty()) {
    return refusal;
  }
  if (std::string refusal = refuse_types(problem); !refusal.empty()) return refusal;
  return refuse_sizes(problem);
}

}  // namespace flashcore::cuda::backward_sm80::general
