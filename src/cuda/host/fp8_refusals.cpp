#include "cuda/host/fp8_refusals.hpp"

#include <fmt/format.h>

#include <utility>

#include "flashcore/flashcore.hpp"

namespace flashcore::cuda::host {

std::string refuse_e4m3_types(const ForwardProblem& p) {
  if (p.dtype != DType::f8e4m3) {
    return fmt::format("q: dtype is {}, wanted f8e4m3", to_string(p.dtype));
  }
  if (p.o_dtype != DType::f32 && p.o_dtype != DType::f16 && p.o_dtype != DType::bf16) {
    return fmt::format("o: dtype is {}, wanted f32, f16 or bf16", to_string(p.o_dtype));
  }
  if (p.has_lse && p.lse_dtype != DType::f32) {
    return fmt::format("lse: dtype is {}, wanted f32", to_string(p.lse_dtype));
  }
  return {};
}

std::string refuse_pair_options(const ForwardProblem& p) {
  if (p.bias.present) return "bias: is given, wanted none";
  if (p.mask.present) return "mask: is given, wanted none";
  if (p.alibi_slopes.present) return "alibi_slopes: is given, wanted none";
  if (p.dropout_p > 0) return fmt::format("dropout_p: is {}, wanted 0", p.dropout_p);
  return {};
}

std::string refuse_block_scales(const ForwardProblem& p) {
  for (const auto& [name, scale] : {std::pair{"k_scale", &p.k_scale}, {"v_scale", &p.v_scale}}) {
    if (scale->present && scale->block != 0 && p.kv_scale_block < p.seqlen_kv) {
      return fmt::format("{}: has one for every {} keys, wanted one for all of a head", name,
                         p.kv_scale_block);
    }
  }
  return {};
}

}  // namespace flashcore::cuda::host
