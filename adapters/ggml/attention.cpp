#include "attention.hpp"

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

namespace flashcore::ggml {
namespace {

constexpr size_t kMostMethods = 256;

struct Parameters {
  float scale = 1, max_bias = 0, softcap = 0;
};

// The operation's tensors by name.
struct Tensors {
  const ggml_tensor &q, &k, &v, &o;
  const ggml_tensor *mask, *sinks;

  explicit Tensors(const ggml_tensor& op)
      : q(*op.src[0]), k(*op.src[1]), v(*op.src[2]), o(op), mask(op.src[3]), sinks(op.src[4]) {}
  int64_t group() const { return q.ne[2] / k.ne[2]; }  // query heads per head of k and v
};

Parameters parameters_of(const ggml_tensor& op) {
  Parameters parameters;
  std::memcpy(&parameters, op.op_params, sizeof(parameters));
  return parameters;
}

std::optional<DType> dtype_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return DType::f32;
    case GGML_TYPE_F16:
      return DType::f16;
    case GGML_TYPE_BF16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

bool can_be_converted(ggml_type type) {
  return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
}

// ggml's [columns, rows, heads, batch] as [B, H, S, D], with strides in elements.
TensorDesc described(DType dtype, const ggml_tensor& tensor) {
  const auto stride = [&](int n) { return static_cast<int64_t>(tensor.nb[n] / tensor.nb[0]); };
  return TensorDesc::strided(dtype, {tensor.ne[3], tensor.ne[2], tensor.ne[1], tensor.ne[0]},
                             {stride(3), stride(2), stride(1), 1});
}

// The same extents in memory of our own.
TensorDesc contiguous(DType dtype, const ggml_tensor& tensor) {
  return TensorDesc::contiguous(dtype, {tensor.ne[3], tensor.ne[2], tensor.ne[1], tensor.ne[0]});
}

// Heads of one sequence, in the tensor's own memory or not.
TensorDesc some_heads(TensorDesc all, int64_t heads) {
  all.shape[0] = 1;
  all.shape[1] = heads;
  return all;
}

const char* row_of(const ggml_tensor& tensor, int64_t b, int64_t h, int64_t s) {
  return static_cast<const char*>(tensor.data) + static_cast<size_t>(s) * tensor.nb[1] +
         static_cast<size_t>(h) * tensor.nb[2] + static_cast<size_t>(b) * tensor.nb[3];
}

template <class T>
T* room(std::vector<std::byte>& memory, int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * sizeof(T);
  if (memory.size() < bytes) memory.resize(bytes);
  return reinterpret_cast<T*>(memory.data());
}

// Rows that ggml would read as they are: numbers of one type without gaps, of whole blocks.
bool has_plain_rows(const ggml_tensor& tensor) {
  return tensor.nb[0] == ggml_type_size(tensor.type) &&
         tensor.ne[0] % ggml_blck_size(tensor.type) == 0 && tensor.nb[1] % tensor.nb[0] == 0 &&
         tensor.nb[2] % tensor.nb[0] == 0 && tensor.nb[3] % tensor.nb[0] == 0;
}

// Whether ggml's rules for the operation hold, in the forms that FlashCore knows.
bool is_well_formed(const Tensors& t, const Parameters& parameters) {
  if (t.q.type != GGML_TYPE_F32 || t.o.type != GGML_TYPE_F32) return false;
  if (!can_be_converted(t.k.type) || !can_be_converted(t.v.type)) return false;
  if (!has_plain_rows(t.q) || !has_plain_rows(t.k) || !has_plain_rows(t.v)) return false;
  if (t.k.ne[2] != t.v.ne[2] || t.k.ne[1] != t.v.ne[1] || t.k.ne[2] == 0 ||
      t.q.ne[2] % t.k.ne[2] != 0)
    return false;
  if (t.k.ne[3] != t.q.ne[3] || t.v.ne[3] != t.q.ne[3] || !ggml_is_contiguous(&t.o)) return false;
  if (parameters.max_bias > 0 && t.mask == nullptr) return false;
  if (t.sinks != nullptr && (t.sinks->type != GGML_TYPE_F32 || !ggml_is_contiguous(t.sinks)))
    return false;
  return t.mask == nullptr ||
         (t.mask->type == GGML_TYPE_F16 && has_plain_rows(*t.mask) && t.mask->ne[0] == t.k.ne[1] &&
          t.mask->ne[1] >= t.q.ne[1] && (t.mask->ne[2] == 1 || t.mask->ne[2] == t.q.ne[2]) &&
          (t.mask->ne[3] == 1 || t.mask->ne[3] == t.q.ne[3]));
}

// ALiBi's slope of a head, as the paper has them for any number of heads (Press et al. 2022).
float slope_of(float max_bias, int64_t head, int64_t heads) {
  const int64_t power = int64_t{1}
                        << static_cast<int>(std::floor(std::log2(static_cast<double>(heads))));
  const double step =
      head < power ? static_cast<double>(head + 1) : static_cast<double>(head - power) + 0.5;
  return static_cast<float>(
      std::exp2(-static_cast<double>(max_bias) * step / static_cast<double>(power)));
}

}  // namespace

void Attention::set_threads(int threads) {
  const std::lock_guard lock(mutex_);
  if (threads != threads_) methods_.clear();
  threads_ = threads;
}

const Method* Attention::method_of(const ggml_tensor& op) {
  const Tensors t(op);
  const Parameters parameters = parameters_of(op);
  if (!is_well_formed(t, parameters)) return nullptr;
  Key key;
  for (const ggml_tensor* const one : {&t.q, &t.k, &t.v, t.mask, t.sinks}) {
    if (one == nullptr) {
      key.push_back(-1);
      continue;
    }
    key.push_back(one->type);
    for (int n = 0; n < GGML_MAX_DIMS; ++n) {
      key.push_back(one->ne[n]);
      key.push_back(static_cast<int64_t>(one->nb[n]));
    }
  }
  for (const int32_t word : {op.op_params[0], op.op_params[1], op.op_params[2]})
    key.push_back(word);
  if (const auto found = methods_.find(key); found != methods_.end()) {
    return found->second ? &*found->second : nullptr;
  }
  if (methods_.size() >= kMostMethods) methods_.clear();

  const std::optional<DType> k_type = dtype_of(t.k.type);
  const bool converts_kv = !k_type || t.v.type != t.k.type;
  const bool by_head = parameters.max_bias > 0;
  const DType dtype = converts_kv ? DType::f32 : *k_type;
  Problem problem;
  problem.q = dtype == DType::f32 ? described(dtype, t.q) : contiguous(dtype, t.q);
  problem.k = converts_kv ? contiguous(dtype, t.k) : described(dtype, t.k);
  problem.v = converts_kv ? contiguous(dtype, t.v) : described(dtype, t.v);
  const int64_t heads = t.q.ne[2], rows = t.q.ne[1], columns = t.v.ne[0];
  problem.o = TensorDesc::strided(DType::f32, {t.q.ne[3], heads, rows, columns},
                                  {heads * rows * columns, columns, heads * columns, 1});
  if (t.mask != nullptr) {
    problem.bias = described(DType::f16, *t.mask);
    problem.bias->shape[2] = rows;  // a mask may have more
  }
  if (by_head) problem.bias = TensorDesc::contiguous(DType::f32, {1, 1, rows, t.k.ne[1]});
  if (converts_kv || by_head) {
    const int64_t at_once = by_head ? 1 : t.group();
    for (TensorDesc* const one : {&problem.q, &problem.o}) *one = some_heads(*one, at_once);
    for (TensorDesc* const one : {&problem.k, &problem.v}) *one = some_heads(*one, 1);
    if (problem.bias)
      *problem.bias = some_heads(*problem.bias, problem.bias->shape[1] == 1 ? 1 : at_once);
  }
  if (t.sinks != nullptr) problem.sinks = TensorDesc::contiguous(DType::f32, {problem.q.shape[1]});
  problem.softmax_scale = parameters.scale;
  problem.softcap = parameters.softcap;
  PlanOptions options;
  options.threads = threads_;
  Result<Plan> plan = make_plan(problem, options);
  std::optional<Method>& method = methods_[std::move(key)];
  if (plan.ok()) method = Method{*plan, dtype, converts_kv, by_head};
  return method ? &*method : nullptr;
}

bool Attention::supports(const ggml_tensor& op) {
  const std::lock_guard lock(mutex_);
  return method_of(op) != nullptr;
}

Status Attention::run_plan(const Plan& plan, const Arguments& arguments) {
  constexpr size_t kAlignment = 256;  // of a workspace
  size_t space = plan.workspace_bytes() + kAlignment;
  void* aligned = room<std::byte>(workspace_, static_cast<int64_t>(space));
  std::align(kAlignment, plan.workspace_bytes(), aligned, space);
  return plan.run(arguments, aligned, space);
}

Status Attention::run_at_once(const ggml_tensor& op, const Method& method) {
  const Tensors t(op);
  Arguments arguments{.q = t.q.data, .k = t.k.data, .v = t.v.data, .o = t.o.data};
  if (t.mask != nullptr) arguments.bias = t.mask->data;
  if (t.sinks != nullptr) arguments.sinks = static_cast<const float*>(t.sinks->data);
  if (method.keys != DType::f32) arguments.q = q_.data();
  return run_plan(method.plan, arguments);
}

Status Attention::run_by_head(const ggml_tensor& op, const Method& method) {
  const Tensors t(op);
  const Parameters parameters = parameters_of(op);
  const int64_t heads = t.q.ne[2], rows = t.q.ne[1], keys = t.k.ne[1];
  const int64_t at_once = method.by_head ? 1 : t.group();
  const int threads = threads_ > 0 ? threads_ : 1;
  const auto converted = [&](std::vector<std::byte>& memory, const ggml_tensor& tensor, int64_t b,
                             int64_t h) {
    float* const to = room<float>(memory, keys * tensor.ne[0]);
    const ggml_to_float_t convert = ggml_get_type_traits(tensor.type)->to_float;
#pragma omp parallel for num_threads(threads)
    for (int64_t s = 0; s < keys; ++s) {
      if (convert != nullptr) {
        convert(row_of(tensor, b, h, s), to + s * tensor.ne[0], tensor.ne[0]);
      } else {
        std::memcpy(to + s * tensor.ne[0], row_of(tensor, b, h, s),
                    static_cast<size_t>(tensor.ne[0]) * sizeof(float));
      }
    }
    return static_cast<const void*>(to);
  };
  Arguments arguments;
  for (int64_t b = 0; b < t.q.ne[3]; ++b) {
    for (int64_t h = 0; h < heads; h += at_once) {
      const int64_t shared = h / t.group();
      if (!method.converts_kv) {
        arguments.k = row_of(t.k, b, shared, 0);
        arguments.v = row_of(t.v, b, shared, 0);
      } else if (h % t.group() == 0) {
        arguments.k = converted(k_, t.k, b, shared);
        arguments.v = converted(v_, t.v, b, shared);
      }
      const auto* const own_q =
          q_.data() + static_cast<size_t>((b * heads + h) * rows * t.q.ne[0]) * 2;
      arguments.q =
          method.keys == DType::f32 ? static_cast<const void*>(row_of(t.q, b, h, 0)) : own_q;
      arguments.o = static_cast<char*>(t.o.data) + static_cast<size_t>(b) * t.o.nb[3] +
                    static_cast<size_t>(h) * t.o.nb[1];
      if (t.sinks != nullptr) arguments.sinks = static_cast<const float*>(t.sinks->data) + h;
      if (t.mask != nullptr)
        arguments.bias = row_of(*t.mask, b % t.mask->ne[3], h % t.mask->ne[2], 0);
      if (method.by_head) {
        const float slope = slope_of(parameters.max_bias, h, heads);
        float* const bias = room<float>(bias_, rows * keys);
#pragma omp parallel for num_threads(threads)
        for (int64_t s = 0; s < rows; ++s) {
          const auto* const mask = reinterpret_cast<const ggml_fp16_t*>(
              row_of(*t.mask, b % t.mask->ne[3], h % t.mask->ne[2], s));
          ggml_fp16_to_fp32_row(mask, bias + s * keys, keys);
          for (int64_t j = 0; j < keys; ++j) bias[s * keys + j] *= slope;
        }
        arguments.bias = bias;
      }
      const Status status = run_plan(method.plan, arguments);
      if (!status.ok()) return status;
    }
  }
  return {};
}

Status Attention::run(const ggml_tensor& op) {
  const std::lock_guard lock(mutex_);
  const Method* const method = method_of(op);
  if (method == nullptr) return Status(StatusCode::unsupported, "this attention has no kernel");
  ++runs_;
  const Tensors t(op);
  if (method->keys != DType::f32) {  // q in the type of k, as ggml's own kernel has it
    const int64_t columns = t.q.ne[0], rows = t.q.ne[1], heads = t.q.ne[2];
    auto* const to = room<uint16_t>(q_, ggml_nelements(&t.q));
    const int threads = threads_ > 0 ? threads_ : 1;
#pragma omp parallel for collapse(3) num_threads(threads)
    for (int64_t b = 0; b < t.q.ne[3]; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t s = 0; s < rows; ++s) {
          const auto* const from = reinterpret_cast<const float*>(row_of(t.q, b, h, s));
          uint16_t* const row = to + ((b * heads + h) * rows + s) * columns;
          if (method->keys == DType::f16) {
            ggml_fp32_to_fp16_row(from, row, columns);
          } else {
            ggml_fp32_to_bf16_row(from, reinterpret_cast<ggml_bf16_t*>(row), columns);
          }
        }
      }
    }
  }
  return method->converts_kv || method->by_head ? run_by_head(op, *method)
                                                : run_at_once(op, *method);
}

}  // namespace flashcore::ggml
