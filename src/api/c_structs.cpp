#include "api/c_structs.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "api/sized_struct.hpp"
#include "problem/status.hpp"

namespace flashcore::api {
namespace {

static_assert(FLASHCORE_MAX_RANK == TensorDesc::kMaxRank);
static_assert(sizeof(flashcore_tensor) == 72 && alignof(flashcore_tensor) == 8);
static_assert(sizeof(flashcore_problem) % 8 == 0);

template <class What>
Result<typename StructsOf<What>::Arguments> read_pointers(
    const typename StructsOf<What>::CArguments* arguments) {
  typename StructsOf<What>::CArguments c = {};
  typename StructsOf<What>::Arguments out;
  FLASHCORE_RETURN_IF_ERROR(read_data<What>(arguments, c, out));
  return out;
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

template <>
flashcore_problem default_struct() {
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

template <>
flashcore_plan_options default_struct() {
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

template <>
flashcore_append_problem default_struct() {
  flashcore_append_problem problem = {};
  problem.rope_scale = Append{}.rope_scale;
  return problem;
}

TensorDesc to_cpp(const flashcore_tensor& tensor) {
  TensorDesc out;
  out.dtype = static_cast<DType>(tensor.dtype);
  out.rank = tensor.rank;
  std::copy(std::begin(tensor.shape), std::end(tensor.shape), out.shape.begin());
  std::copy(std::begin(tensor.stride), std::end(tensor.stride), out.stride.begin());
  return out;
}

Status check_absent(std::string_view name, const flashcore_tensor& tensor) {
  const auto is_zero = [](int64_t value) { return value == 0; };
  if (tensor.dtype == 0 && std::all_of(std::begin(tensor.shape), std::end(tensor.shape), is_zero) &&
      std::all_of(std::begin(tensor.stride), std::end(tensor.stride), is_zero)) {
    return {};
  }
  return invalid("{}: rank is 0 but other members are not, wanted all zero for an absent tensor",
                 name);
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
  flashcore_problem c;
  Problem out;
  FLASHCORE_RETURN_IF_ERROR(read_tensors(problem, c, out));
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
  auto c = default_struct<flashcore_plan_options>();
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
  Arguments out;
  FLASHCORE_RETURN_IF_ERROR(read_data<Problem>(arguments, c, out));
  out.dropout_seed = c.dropout_seed;
  out.dropout_offset = c.dropout_offset;
  return out;
}

Result<Gradients> read_gradients(const flashcore_gradients* gradients) {
  flashcore_gradients c;
  Gradients out;
  FLASHCORE_RETURN_IF_ERROR(read_tensors(gradients, c, out));
  return out;
}

Result<BackwardArguments> read_arguments(const flashcore_backward_arguments* arguments) {
  flashcore_backward_arguments c = {};
  BackwardArguments out;
  FLASHCORE_RETURN_IF_ERROR(read_data<Gradients>(arguments, c, out));
  if (c.forward == nullptr) {
    return invalid("forward: pointer is null, wanted the arguments of the forward pass");
  }
  const Result<Arguments> forward = read_arguments(c.forward);
  if (!forward.ok()) return forward.status();
  out.forward = *forward;
  return out;
}

Result<Merge> read_problem(const flashcore_merge_problem* problem) {
  flashcore_merge_problem c;
  Merge out;
  FLASHCORE_RETURN_IF_ERROR(read_tensors(problem, c, out));
  return out;
}

Result<MergeArguments> read_arguments(const flashcore_merge_arguments* arguments) {
  return read_pointers<Merge>(arguments);
}

Result<Append> read_problem(const flashcore_append_problem* problem) {
  flashcore_append_problem c;
  Append out;
  FLASHCORE_RETURN_IF_ERROR(read_tensors(problem, c, out));
  FLASHCORE_RETURN_IF_ERROR(read_flag("interleaved", c.interleaved, out.interleaved));
  out.kv_scale_block = c.kv_scale_block;
  FLASHCORE_RETURN_IF_ERROR(read_flag("v_transposed", c.v_transposed, out.v_transposed));
  out.rotary_dim = c.rotary_dim;
  out.rope_base = c.rope_base;
  out.rope_scale = c.rope_scale;
  return out;
}

Result<AppendArguments> read_arguments(const flashcore_append_arguments* arguments) {
  return read_pointers<Append>(arguments);
}

Result<Quantize> read_problem(const flashcore_quantize_problem* problem) {
  flashcore_quantize_problem c;
  Quantize out;
  FLASHCORE_RETURN_IF_ERROR(read_tensors(problem, c, out));
  out.scale_block = c.scale_block;
  out.max_seqlen = c.max_seqlen;
  return out;
}

Result<QuantizeArguments> read_arguments(const flashcore_quantize_arguments* arguments) {
  return read_pointers<Quantize>(arguments);
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
