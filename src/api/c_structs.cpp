// Sized structs: `struct_size` bytes are the caller's. Members past it have their defaults, and
// bytes past what this library knows must be zero.
#include "api/c_structs.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "problem/status.hpp"

namespace flashcore::api {
namespace {

static_assert(FLASHCORE_MAX_RANK == TensorDesc::kMaxRank);
static_assert(sizeof(flashcore_tensor) == 72 && alignof(flashcore_tensor) == 8);
static_assert(sizeof(flashcore_problem) % 8 == 0);

// No struct grows past this; a larger struct_size is garbage, and reading as far would be too.
constexpr size_t kLargestStruct = 8192;

// The smallest sizes taken: inputs need what has no default, outputs everything since version 0.1.
template <class T>
constexpr size_t kSmallest = 0;
template <>
constexpr size_t kSmallest<flashcore_problem> = offsetof(flashcore_problem, lse);
template <>
constexpr size_t kSmallest<flashcore_plan_options> = offsetof(flashcore_plan_options, kernel);
template <>
constexpr size_t kSmallest<flashcore_arguments> = offsetof(flashcore_arguments, lse);
template <>
constexpr size_t kSmallest<flashcore_gradients> = offsetof(flashcore_gradients, d_lse);
template <>
constexpr size_t kSmallest<flashcore_backward_arguments> = offsetof(flashcore_backward_arguments,
                                                                    d_lse);
template <>
constexpr size_t kSmallest<flashcore_merge_problem> = offsetof(flashcore_merge_problem, lse);
template <>
constexpr size_t kSmallest<flashcore_merge_arguments> = offsetof(flashcore_merge_arguments, lse);
template <>
constexpr size_t kSmallest<flashcore_append_problem> = offsetof(flashcore_append_problem,
                                                                seqlens_new);
template <>
constexpr size_t kSmallest<flashcore_append_arguments> = offsetof(flashcore_append_arguments,
                                                                  seqlens_new);
template <>
constexpr size_t kSmallest<flashcore_device_info> = sizeof(flashcore_device_info);
template <>
constexpr size_t kSmallest<flashcore_build_info> = sizeof(flashcore_build_info);

// The parameter's name.
template <class T>
constexpr std::string_view kName = "info";
template <>
constexpr std::string_view kName<flashcore_problem> = "problem";
template <>
constexpr std::string_view kName<flashcore_plan_options> = "options";
template <>
constexpr std::string_view kName<flashcore_arguments> = "arguments";
template <>
constexpr std::string_view kName<flashcore_merge_problem> = "problem";
template <>
constexpr std::string_view kName<flashcore_merge_arguments> = "arguments";
template <>
constexpr std::string_view kName<flashcore_append_problem> = "problem";
template <>
constexpr std::string_view kName<flashcore_append_arguments> = "arguments";
template <>
constexpr std::string_view kName<flashcore_gradients> = "gradients";
template <>
constexpr std::string_view kName<flashcore_backward_arguments> = "arguments";

// Members come in units of 8 bytes, except for tensors, which are not cut either.
template <class T>
constexpr bool ends_between_members(size_t size) {
  if constexpr (std::is_same_v<T, flashcore_problem>) {
    constexpr size_t first = offsetof(flashcore_problem, q);
    constexpr size_t last = offsetof(flashcore_problem, has_softmax_scale);
    if (size < last) return (size - first) % sizeof(flashcore_tensor) == 0;
    constexpr size_t state = offsetof(flashcore_problem, dropout_state);
    if (size > state && size < sizeof(T)) return (size - state) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_gradients>) {
    constexpr size_t first = offsetof(flashcore_gradients, d_o);
    if (size < sizeof(T)) return (size - first) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_merge_problem>) {
    if (size < sizeof(T)) return (size - sizeof(size_t)) % sizeof(flashcore_tensor) == 0;
  }
  if constexpr (std::is_same_v<T, flashcore_append_problem>) {
    constexpr size_t last = offsetof(flashcore_append_problem, kv_scale_block);
    if (size < last) return (size - sizeof(size_t)) % sizeof(flashcore_tensor) == 0;
  }
  return size % 8 == 0;
}

template <class T>
Status check_struct(const T* pointer, size_t size) {
  if (size < kSmallest<T> || size > kLargestStruct || !ends_between_members<T>(size)) {
    return invalid("{}: struct_size is {}, wanted sizeof of the struct, {} in this version",
                   kName<T>, size, sizeof(T));
  }
  if (reinterpret_cast<uintptr_t>(pointer) % alignof(T) != 0) {
    return invalid("{}: pointer {} is not aligned, wanted a multiple of {}", kName<T>,
                   static_cast<const void*>(pointer), alignof(T));
  }
  return {};
}

template <class T>
Status check_not_null(const T* pointer) {
  if (pointer != nullptr) return {};
  return invalid("{}: pointer is null, wanted a struct", kName<T>);
}

template <class T>
size_t declared_size(const T* from) {
  size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  return size;
}

// `value` holds the defaults on entry.
template <class T>
Status read_sized(const T* from, T& value) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(from));
  const size_t size = declared_size(from);
  FLASHCORE_RETURN_IF_ERROR(check_struct(from, size));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return unsupported("{}: byte {} of {} is not zero, wanted only the {} bytes of version {}",
                         kName<T>, i, size, sizeof(T), build_info().version);
    }
  }
  std::memcpy(&value, from, std::min(size, sizeof(T)));
  return {};
}

template <class T>
Status write_sized(const T& value, T* to) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(to));
  const size_t size = declared_size(to);
  FLASHCORE_RETURN_IF_ERROR(check_struct(to, size));
  auto* const bytes = reinterpret_cast<unsigned char*>(to);
  std::memcpy(bytes, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  std::memcpy(bytes, &size, sizeof size);
  return {};
}

template <class T>
Status init_sized(T value, T* to, size_t struct_size) {
  FLASHCORE_RETURN_IF_ERROR(check_not_null(to));
  FLASHCORE_RETURN_IF_ERROR(check_struct(to, struct_size));
  std::memcpy(to, &struct_size, sizeof struct_size);
  return write_sized(value, to);
}

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
  return problem;
}

flashcore_append_problem default_append() {
  flashcore_append_problem problem = {};
  problem.rope_scale = Append{}.rope_scale;
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
      std::tuple<std::string_view, const flashcore_tensor*, std::optional<TensorDesc>*>, 20>
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
                   {"page_status", &c.page_status, &out.page_status}}};
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
                   .page_status = c.page_status};
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
  if (c.reserved != 0) return invalid("reserved: is {}, wanted 0", c.reserved);
  out.kv_scale_block = c.kv_scale_block;
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
  c.shared_memory_a_block = info.shared_memory_a_block;
  c.memory_bytes = info.memory_bytes;
  std::copy_n(info.name.begin(), std::min(info.name.size(), sizeof c.name - 1), c.name);
  return write_sized(c, out);
}

Status write_build_info(const flashcore_build_info& info, flashcore_build_info* out) {
  return write_sized(info, out);
}

}  // namespace flashcore::api
