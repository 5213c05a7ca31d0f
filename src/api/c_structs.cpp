// The structs of attention, of its gradients and of the library itself.
#include "api/c_structs.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>

#include "api/sized_struct.hpp"
#include "problem/status.hpp"

namespace flashcore::api {
namespace {

static_assert(FLASHCORE_MAX_RANK == TensorDesc::kMaxRank);
static_assert(sizeof(flashcore_tensor) == 72 && alignof(flashcore_tensor) == 8);
static_assert(sizeof(flashcore_problem) % 8 == 0);

flashcore_problem default_problem() {
  const Problem defaults;
  flashcore_problem problem = {};
  problem.softcap = defaults.softcap;
  problem.causal = defaults.causal ? 1 : 0;
  problem.alignment = static_cast<int32_t>(defaults.alignment);
  problem.dropout_p = defaults.dropout_p;
  problem.causal_offset = defaults.causal_offset;
  problem.window_left = defaults.window_left;
  problem.window_right = defaults.window_right;
  problem.kv_scale_block = defaults.kv_scale_block;
  problem.max_seqlen_q = defaults.max_seqlen_q;
  problem.max_seqlen_kv = defaults.max_seqlen_kv;
  problem.v_transposed = defaults.v_transposed ? 1 : 0;
  return problem;
}

flashcore_plan_options default_options() {
  const PlanOptions defaults;
  flashcore_plan_options options = {};
  options.device_kind = static_cast<int32_t>(defaults.device.kind);
  options.device_index = defaults.device.index;
  options.threads = defaults.threads;
  options.batch_invariant = defaults.batch_invariant ? 1 : 0;
  options.early_start = defaults.early_start ? 1 : 0;
  options.deterministic = defaults.deterministic ? 1 : 0;
  return options;
}

Status read_softmax_scale(const flashcore_problem& problem, std::optional<float>& out) {
  bool present = false;
  FLASHCORE_RETURN_IF_ERROR(read_flag("has_softmax_scale", problem.has_softmax_scale, present));
  if (present) out = problem.softmax_scale;
  if (!present && problem.softmax_scale != 0) {  // NaN is not zero either
    return invalid("softmax_scale: is {}, wanted 0 unless has_softmax_scale is 1",
                   problem.softmax_scale);
  }
  return {};
}

}  // namespace

TensorDesc to_cpp(const flashcore_tensor& tensor) {
  TensorDesc out;
  out.dtype = static_cast<DType>(tensor.dtype);
  out.rank = tensor.rank;
  std::copy(std::begin(tensor.shape), std::end(tensor.shape), out.shape.begin());
  std::copy(std::begin(tensor.stride), std::end(tensor.stride), out.stride.begin());
  return out;
}

Status read_optional(std::string_view name, const flashcore_tensor& tensor,
                     std::optional<TensorDesc>& out) {
  if (tensor.rank != 0) {
    out = to_cpp(tensor);
    return {};
  }
  const auto is_zero = [](int64_t value) { return value == 0; };
  if (tensor.dtype != 0 ||
      !std::all_of(std::begin(tensor.shape), std::end(tensor.shape), is_zero) ||
      !std::all_of(std::begin(tensor.stride), std::end(tensor.stride), is_zero)) {
    return invalid("{}: rank is 0 but other members are not, wanted all zero for an absent tensor",
                   name);
  }
  return {};
}

Status read_flag(std::string_view name, int32_t value, bool& out) {
  if (value != 0 && value != 1) return invalid("{}: is {}, wanted 0 or 1", name, value);
  out = value == 1;
  return {};
}

flashcore_tensor to_c(const TensorDesc& tensor) {
  flashcore_tensor out = {};
  out.dtype = static_cast<int32_t>(tensor.dtype);
  out.rank = tensor.rank;
  std::copy(tensor.shape.begin(), tensor.shape.end(), std::begin(out.shape));
  std::copy(tensor.stride.begin(), tensor.stride.end(), std::begin(out.stride));
  return out;
}

Result<Problem> read_problem(const flashcore_problem* problem) {
  flashcore_problem c = default_problem();
  FLASHCORE_RETURN_IF_ERROR(read_sized(problem, c));
  Problem out;
  out.q = to_cpp(c.q);
  out.k = to_cpp(c.k);
  out.v = to_cpp(c.v);
  out.o = to_cpp(c.o);
  const std::array<
      std::tuple<std::string_view, const flashcore_tensor*, std::optional<TensorDesc>*>, 24>
      optional = {{{"lse", &c.lse, &out.lse},
                   {"bias", &c.bias, &out.bias},
                   {"mask", &c.mask, &out.mask},
                   {"alibi_slopes", &c.alibi_slopes, &out.alibi_slopes},
                   {"sinks", &c.sinks, &out.sinks},
                   {"q_scale", &c.q_scale, &out.q_scale},
                   {"k_scale", &c.k_scale, &out.k_scale},
                   {"v_scale", &c.v_scale, &out.v_scale},
                   {"cu_seqlens_q", &c.cu_seqlens_q, &out.cu_seqlens_q},
                   {"cu_seqlens_kv", &c.cu_seqlens_kv, &out.cu_seqlens_kv},
                   {"seqlens_q", &c.seqlens_q, &out.seqlens_q},
                   {"seqlens_kv", &c.seqlens_kv, &out.seqlens_kv},
                   {"causal_offsets", &c.causal_offsets, &out.causal_offsets},
                   {"dropout_state", &c.dropout_state, &out.dropout_state},
                   {"page_table", &c.page_table, &out.page_table},
                   {"kv_indptr", &c.kv_indptr, &out.kv_indptr},
                   {"kv_indices", &c.kv_indices, &out.kv_indices},
                   {"kv_last_page_len", &c.kv_last_page_len, &out.kv_last_page_len},
                   {"cache_leftpad", &c.cache_leftpad, &out.cache_leftpad},
                   {"page_status", &c.page_status, &out.page_status},
                   {"tree_mask", &c.tree_mask, &out.tree_mask},
                   {"o_scale", &c.o_scale, &out.o_scale},
                   {"amax_o", &c.amax_o, &out.amax_o},
                   {"amax_s", &c.amax_s, &out.amax_s}}};
  for (const auto& [name, from, to] : optional) {
    FLASHCORE_RETURN_IF_ERROR(read_optional(name, *from, *to));
  }
  FLASHCORE_RETURN_IF_ERROR(read_softmax_scale(c, out.softmax_scale));
  FLASHCORE_RETURN_IF_ERROR(read_flag("causal", c.causal, out.causal));
  out.softcap = c.softcap;
  out.alignment = static_cast<Alignment>(c.alignment);
  out.causal_offset = c.causal_offset;
  out.window_left = c.window_left;
  out.window_right = c.window_right;
  out.dropout_p = c.dropout_p;
  out.kv_scale_block = c.kv_scale_block;
  out.max_seqlen_q = c.max_seqlen_q;
  out.max_seqlen_kv = c.max_seqlen_kv;
  FLASHCORE_RETURN_IF_ERROR(read_flag("v_transposed", c.v_transposed, out.v_transposed));
  if (c.reserved != 0) return invalid("reserved: is {}, wanted 0", c.reserved);
  return out;
}

Result<PlanOptions> read_options(const flashcore_plan_options* options) {
  PlanOptions out;
  if (options == nullptr) return out;
  flashcore_plan_options c = default_options();
  FLASHCORE_RETURN_IF_ERROR(read_sized(options, c));
  out.device = {static_cast<DeviceKind>(c.device_kind), c.device_index};
  out.threads = c.threads;
  FLASHCORE_RETURN_IF_ERROR(read_flag("batch_invariant", c.batch_invariant, out.batch_invariant));
  FLASHCORE_RETURN_IF_ERROR(read_flag("early_start", c.early_start, out.early_start));
  FLASHCORE_RETURN_IF_ERROR(read_flag("deterministic", c.deterministic, out.deterministic));
  if (c.reserved != 0) return invalid("reserved: is {}, wanted 0", c.reserved);
  if (c.kernel != nullptr) {
    constexpr size_t kLongestName = 255;
    const size_t length = strnlen(c.kernel, kLongestName + 1);
    if (length > kLongestName) {
      return invalid("kernel: has more than {} characters, wanted a name of the table of kernels",
                     kLongestName);
    }
    out.kernel.assign(c.kernel, length);
  }
  return out;
}

Result<Arguments> read_arguments(const flashcore_arguments* arguments) {
  flashcore_arguments c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(arguments, c));
  return Arguments{.q = c.q,
                   .k = c.k,
                   .v = c.v,
                   .o = c.o,
                   .lse = c.lse,
                   .bias = c.bias,
                   .mask = c.mask,
                   .alibi_slopes = c.alibi_slopes,
                   .sinks = c.sinks,
                   .q_scale = c.q_scale,
                   .k_scale = c.k_scale,
                   .v_scale = c.v_scale,
                   .cu_seqlens_q = c.cu_seqlens_q,
                   .cu_seqlens_kv = c.cu_seqlens_kv,
                   .seqlens_q = c.seqlens_q,
                   .seqlens_kv = c.seqlens_kv,
                   .causal_offsets = c.causal_offsets,
                   .dropout_seed = c.dropout_seed,
                   .dropout_offset = c.dropout_offset,
                   .dropout_state = c.dropout_state,
                   .page_table = c.page_table,
                   .kv_indptr = c.kv_indptr,
                   .kv_indices = c.kv_indices,
                   .kv_last_page_len = c.kv_last_page_len,
                   .cache_leftpad = c.cache_leftpad,
                   .page_status = c.page_status,
                   .tree_mask = c.tree_mask,
                   .o_scale = c.o_scale,
                   .amax_o = c.amax_o,
                   .amax_s = c.amax_s};
}

Result<Gradients> read_gradients(const flashcore_gradients* gradients) {
  flashcore_gradients c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(gradients, c));
  Gradients out{.d_o = to_cpp(c.d_o),
                .dq = to_cpp(c.dq),
                .dk = to_cpp(c.dk),
                .dv = to_cpp(c.dv),
                .d_lse = {},
                .d_bias = {},
                .d_sinks = {},
                .d_alibi_slopes = {}};
  FLASHCORE_RETURN_IF_ERROR(read_optional("d_lse", c.d_lse, out.d_lse));
  FLASHCORE_RETURN_IF_ERROR(read_optional("d_bias", c.d_bias, out.d_bias));
  FLASHCORE_RETURN_IF_ERROR(read_optional("d_sinks", c.d_sinks, out.d_sinks));
  FLASHCORE_RETURN_IF_ERROR(read_optional("d_alibi_slopes", c.d_alibi_slopes, out.d_alibi_slopes));
  return out;
}

Result<BackwardArguments> read_arguments(const flashcore_backward_arguments* arguments) {
  flashcore_backward_arguments c = {};
  FLASHCORE_RETURN_IF_ERROR(read_sized(arguments, c));
  if (c.forward == nullptr) {
    return invalid("forward: pointer is null, wanted the arguments of the forward pass");
  }
  const Result<Arguments> forward = read_arguments(c.forward);
  if (!forward.ok()) return forward.status();
  return BackwardArguments{.forward = *forward,
                           .d_o = c.d_o,
                           .d_lse = c.d_lse,
                           .dq = c.dq,
                           .dk = c.dk,
                           .dv = c.dv,
                           .d_bias = c.d_bias,
                           .d_sinks = c.d_sinks,
                           .d_alibi_slopes = c.d_alibi_slopes};
}

Status init_problem(flashcore_problem* problem, size_t struct_size) {
  return init_sized(default_problem(), problem, struct_size);
}

Status init_options(flashcore_plan_options* options, size_t struct_size) {
  return init_sized(default_options(), options, struct_size);
}

Status init_arguments(flashcore_arguments* arguments, size_t struct_size) {
  return init_sized(flashcore_arguments{}, arguments, struct_size);
}

Status init_gradients(flashcore_gradients* gradients, size_t struct_size) {
  return init_sized(flashcore_gradients{}, gradients, struct_size);
}

Status init_arguments(flashcore_backward_arguments* arguments, size_t struct_size) {
  return init_sized(flashcore_backward_arguments{}, arguments, struct_size);
}

Status write_device_info(const DeviceInfo& info, flashcore_device_info* out) {
  flashcore_device_info c = {};
  c.kind = static_cast<int32_t>(info.device.kind);
  c.index = info.device.index;
  c.compute_capability = info.compute_capability;
  c.multiprocessors = info.multiprocessors;
  c.shared_memory_per_block = info.shared_memory_per_block;
  c.memory_bytes = info.memory_bytes;
  std::copy_n(info.name.begin(), std::min(info.name.size(), sizeof c.name - 1), c.name);
  return write_sized(c, out);
}

Status write_build_info(const flashcore_build_info& info, flashcore_build_info* out) {
  return write_sized(info, out);
}

}  // namespace flashcore::api
