// The structs of merge and append.
#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "api/c_structs.hpp"
#include "api/sized_struct.hpp"
#include "problem/status.hpp"

namespace flashcore::api {
namespace {

flashcore_append_problem default_append() {
  flashcore_append_problem problem = {};
  problem.rope_scale = Append{}.rope_scale;
  return problem;
}

}  // namespace

Result<Merge> read_problem(const flashcore_merge_problem* problem) {
  flashcore_merge_problem c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(problem, c));
  Merge out{.o_a = to_cpp(c.o_a),
            .o_b = to_cpp(c.o_b),
            .lse_a = to_cpp(c.lse_a),
            .lse_b = to_cpp(c.lse_b),
            .o = to_cpp(c.o),
            .lse = {}};
  FLASHCORE_RETURN_IF_ERROR(read_optional("lse", c.lse, out.lse));
  return out;
}

Result<MergeArguments> read_arguments(const flashcore_merge_arguments* arguments) {
  flashcore_merge_arguments c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(arguments, c));
  return MergeArguments{
      .o_a = c.o_a, .o_b = c.o_b, .lse_a = c.lse_a, .lse_b = c.lse_b, .o = c.o, .lse = c.lse};
}

Result<Append> read_problem(const flashcore_append_problem* problem) {
  flashcore_append_problem c = default_append();
  FLASHCORE_RETURN_IF_ERROR(read_sized(problem, c));
  Append out;
  out.k_new = to_cpp(c.k_new);
  out.v_new = to_cpp(c.v_new);
  out.k = to_cpp(c.k);
  out.v = to_cpp(c.v);
  out.seqlens_kv = to_cpp(c.seqlens_kv);
  const std::array<
      std::tuple<std::string_view, const flashcore_tensor*, std::optional<TensorDesc>*>, 13>
      optional = {{{"seqlens_new", &c.seqlens_new, &out.seqlens_new},
                   {"cu_seqlens_new", &c.cu_seqlens_new, &out.cu_seqlens_new},
                   {"page_table", &c.page_table, &out.page_table},
                   {"kv_indptr", &c.kv_indptr, &out.kv_indptr},
                   {"kv_indices", &c.kv_indices, &out.kv_indices},
                   {"cache_leftpad", &c.cache_leftpad, &out.cache_leftpad},
                   {"page_status", &c.page_status, &out.page_status},
                   {"k_scale", &c.k_scale, &out.k_scale},
                   {"v_scale", &c.v_scale, &out.v_scale},
                   {"rope_cos", &c.rope_cos, &out.rope_cos},
                   {"rope_sin", &c.rope_sin, &out.rope_sin},
                   {"q", &c.q, &out.q},
                   {"q_out", &c.q_out, &out.q_out}}};
  for (const auto& [name, from, to] : optional) {
    FLASHCORE_RETURN_IF_ERROR(read_optional(name, *from, *to));
  }
  FLASHCORE_RETURN_IF_ERROR(read_flag("interleaved", c.interleaved, out.interleaved));
  out.kv_scale_block = c.kv_scale_block;
  FLASHCORE_RETURN_IF_ERROR(read_flag("v_transposed", c.v_transposed, out.v_transposed));
  out.rotary_dim = c.rotary_dim;
  out.rope_base = c.rope_base;
  out.rope_scale = c.rope_scale;
  return out;
}

Result<AppendArguments> read_arguments(const flashcore_append_arguments* arguments) {
  flashcore_append_arguments c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(arguments, c));
  return AppendArguments{.k_new = c.k_new,
                         .v_new = c.v_new,
                         .k = c.k,
                         .v = c.v,
                         .seqlens_kv = c.seqlens_kv,
                         .seqlens_new = c.seqlens_new,
                         .cu_seqlens_new = c.cu_seqlens_new,
                         .page_table = c.page_table,
                         .kv_indptr = c.kv_indptr,
                         .kv_indices = c.kv_indices,
                         .cache_leftpad = c.cache_leftpad,
                         .page_status = c.page_status,
                         .k_scale = c.k_scale,
                         .v_scale = c.v_scale,
                         .rope_cos = c.rope_cos,
                         .rope_sin = c.rope_sin,
                         .q = c.q,
                         .q_out = c.q_out};
}

Status init_problem(flashcore_merge_problem* problem, size_t struct_size) {
  return init_sized(flashcore_merge_problem{}, problem, struct_size);
}

Status init_arguments(flashcore_merge_arguments* arguments, size_t struct_size) {
  return init_sized(flashcore_merge_arguments{}, arguments, struct_size);
}

Status init_problem(flashcore_append_problem* problem, size_t struct_size) {
  return init_sized(default_append(), problem, struct_size);
}

Status init_arguments(flashcore_append_arguments* arguments, size_t struct_size) {
  return init_sized(flashcore_append_arguments{}, arguments, struct_size);
}

}  // namespace flashcore::api
