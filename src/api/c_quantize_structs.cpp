// The structs of quantisation.
#include "api/c_structs.hpp"
#include "api/sized_struct.hpp"
#include "problem/status.hpp"

namespace flashcore::api {

Result<Quantize> read_problem(const flashcore_quantize_problem* problem) {
  flashcore_quantize_problem c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(problem, c));
  Quantize out;
  out.x = to_cpp(c.x);
  out.x_out = to_cpp(c.x_out);
  out.scale = to_cpp(c.scale);
  FLASHCORE_RETURN_IF_ERROR(read_optional("mean", c.mean, out.mean));
  FLASHCORE_RETURN_IF_ERROR(read_optional("cu_seqlens", c.cu_seqlens, out.cu_seqlens));
  FLASHCORE_RETURN_IF_ERROR(read_optional("seqlens", c.seqlens, out.seqlens));
  out.scale_block = c.scale_block;
  out.max_seqlen = c.max_seqlen;
  return out;
}

Result<QuantizeArguments> read_arguments(const flashcore_quantize_arguments* arguments) {
  flashcore_quantize_arguments c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(arguments, c));
  return QuantizeArguments{.x = c.x,
                           .x_out = c.x_out,
                           .scale = c.scale,
                           .mean = c.mean,
                           .cu_seqlens = c.cu_seqlens,
                           .seqlens = c.seqlens};
}

Status init_problem(flashcore_quantize_problem* problem, size_t struct_size) {
  return init_sized(flashcore_quantize_problem{}, problem, struct_size);
}

Status init_arguments(flashcore_quantize_arguments* arguments, size_t struct_size) {
  return init_sized(flashcore_quantize_arguments{}, arguments, struct_size);
}

}  // namespace flashcore::api
