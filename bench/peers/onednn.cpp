// oneDNN 2 as a peer on the CPU: a matrix product with the scale fused into it, the mask added if
// there is one (fused, oneDNN falls back to plain loops), a softmax, a matrix product. The
// libraries of Linux distributions lack its graph interface.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/peers/native_peer.hpp"
#include "bench/process/shared_library.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr int kDims = 4;
constexpr double kLargestScores = 2e9;  // bytes

using Dims = std::array<dnnl_dim_t, kDims>;

// oneDNN's functions, looked up at run time.
struct Library {
  SharedLibrary library;
  decltype(&::dnnl_version) version = nullptr;
  decltype(&::dnnl_engine_create) engine_create = nullptr;
  decltype(&::dnnl_engine_destroy) engine_destroy = nullptr;
  decltype(&::dnnl_stream_create) stream_create = nullptr;
  decltype(&::dnnl_stream_destroy) stream_destroy = nullptr;
  decltype(&::dnnl_stream_wait) stream_wait = nullptr;
  decltype(&::dnnl_memory_desc_init_by_strides) memory_desc = nullptr;
  decltype(&::dnnl_memory_create) memory_create = nullptr;
  decltype(&::dnnl_memory_destroy) memory_destroy = nullptr;
  decltype(&::dnnl_matmul_desc_init) matmul_desc = nullptr;
  decltype(&::dnnl_softmax_v2_forward_desc_init) softmax_desc = nullptr;
  decltype(&::dnnl_binary_desc_init) binary_desc = nullptr;
  decltype(&::dnnl_primitive_attr_create) attr_create = nullptr;
  decltype(&::dnnl_primitive_attr_destroy) attr_destroy = nullptr;
  decltype(&::dnnl_primitive_attr_set_output_scales) set_scales = nullptr;
  decltype(&::dnnl_primitive_desc_create) primitive_desc = nullptr;
  decltype(&::dnnl_primitive_desc_destroy) primitive_desc_destroy = nullptr;
  decltype(&::dnnl_primitive_create) primitive_create = nullptr;
  decltype(&::dnnl_primitive_destroy) primitive_destroy = nullptr;
  decltype(&::dnnl_primitive_execute) execute = nullptr;
  void (*set_threads)(int) = nullptr;  // its OpenMP's

  static Result<std::shared_ptr<const Library>> open();
};

Result<std::shared_ptr<const Library>> Library::open() {
  constexpr std::array kNames = {"libdnnl.so.2"};
  Result<SharedLibrary> found = SharedLibrary::open("FLASHCORE_ONEDNN", kNames);
  if (!found.ok()) return found.status();
  auto dnnl = std::make_shared<Library>(Library{.library = std::move(*found)});
  bool complete = true;
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = dnnl->library.find<Function>(name);
    complete = complete && function != nullptr;
  };
  find(dnnl->version, "dnnl_version");
  find(dnnl->engine_create, "dnnl_engine_create");
  find(dnnl->engine_destroy, "dnnl_engine_destroy");
  find(dnnl->stream_create, "dnnl_stream_create");
  find(dnnl->stream_destroy, "dnnl_stream_destroy");
  find(dnnl->stream_wait, "dnnl_stream_wait");
  find(dnnl->memory_desc, "dnnl_memory_desc_init_by_strides");
  find(dnnl->memory_create, "dnnl_memory_create");
  find(dnnl->memory_destroy, "dnnl_memory_destroy");
  find(dnnl->matmul_desc, "dnnl_matmul_desc_init");
  find(dnnl->softmax_desc, "dnnl_softmax_v2_forward_desc_init");
  find(dnnl->binary_desc, "dnnl_binary_desc_init");
  find(dnnl->attr_create, "dnnl_primitive_attr_create");
  find(dnnl->attr_destroy, "dnnl_primitive_attr_destroy");
  find(dnnl->set_scales, "dnnl_primitive_attr_set_output_scales");
  find(dnnl->primitive_desc, "dnnl_primitive_desc_create");
  find(dnnl->primitive_desc_destroy, "dnnl_primitive_desc_destroy");
  find(dnnl->primitive_create, "dnnl_primitive_create");
  find(dnnl->primitive_destroy, "dnnl_primitive_destroy");
  find(dnnl->execute, "dnnl_primitive_execute");
  find(dnnl->set_threads, "omp_set_num_threads");
  if (!complete)
    return unsupported("onednn: {} lacks functions of version 2.6", dnnl->library.path());
  return std::shared_ptr<const Library>(std::move(dnnl));
}

Status status_of(dnnl_status_t code, const char* doing) {
  if (code == dnnl_success) return {};
  return unsupported("onednn: {}: status {}", doing, static_cast<int>(code));
}

// oneDNN objects that free themselves.
template <class T>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, dnnl_status_t (*)(T)>;

Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

// One problem: its primitives, the scores between them, and their inputs and outputs.
class Attention {
 public:
  explicit Attention(std::shared_ptr<const Library> dnnl) : dnnl_(std::move(dnnl)) {}

  Status prepare(const Problem& problem, const Arguments& arguments);
  Status run();

 private:
  struct Step {
    Handle<dnnl_primitive_t> primitive;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  Result<dnnl_memory_desc_t> describe(dnnl_data_type_t type, const Dims& dims, const Dims& strides);
  Result<dnnl_memory_t> memory(const dnnl_memory_desc_t& desc, const void* data);
  template <class Desc>
  Status add(const Desc& desc, const_dnnl_primitive_attr_t attr,
             std::vector<dnnl_exec_arg_t> arguments);
  Status add_scores(const Problem& problem, const dnnl_memory_desc_t& q,
                    const dnnl_memory_desc_t& k, const dnnl_memory_desc_t& scores,
                    dnnl_memory_t from_q, dnnl_memory_t from_k, dnnl_memory_t to);

  Status add_mask(const Problem& problem, const dnnl_memory_desc_t& scores, dnnl_memory_t to);

  std::shared_ptr<const Library> dnnl_;
  Handle<dnnl_engine_t> engine_{nullptr, nullptr};
  Handle<dnnl_stream_t> stream_{nullptr, nullptr};
  std::vector<Handle<dnnl_memory_t>> memories_;
  std::vector<Step> steps_;
  std::vector<float> mask_;
  std::vector<std::byte> scores_, weights_;
};

Result<dnnl_memory_desc_t> Attention::describe(dnnl_data_type_t type, const Dims& dims,
                                               const Dims& strides) {
  dnnl_memory_desc_t desc;
  FLASHCORE_RETURN_IF_ERROR(
      status_of(dnnl_->memory_desc(&desc, kDims, dims.data(), type, strides.data()), "a tensor"));
  return desc;
}

Result<dnnl_memory_t> Attention::memory(const dnnl_memory_desc_t& desc, const void* data) {
  dnnl_memory_t made = nullptr;
  // Inputs are only read, but the interface has only one kind of memory.
  FLASHCORE_RETURN_IF_ERROR(status_of(
      dnnl_->memory_create(&made, &desc, engine_.get(), const_cast<void*>(data)), "a memory"));
  memories_.emplace_back(made, dnnl_->memory_destroy);
  return made;
}

template <class Desc>
Status Attention::add(const Desc& desc, const_dnnl_primitive_attr_t attr,
                      std::vector<dnnl_exec_arg_t> arguments) {
  dnnl_primitive_desc_t chosen = nullptr;
  FLASHCORE_RETURN_IF_ERROR(status_of(
      dnnl_->primitive_desc(&chosen, &desc, attr, engine_.get(), nullptr), "choosing a primitive"));
  const Handle<dnnl_primitive_desc_t> owned(chosen, dnnl_->primitive_desc_destroy);
  dnnl_primitive_t made = nullptr;
  FLASHCORE_RETURN_IF_ERROR(
      status_of(dnnl_->primitive_create(&made, chosen), "making a primitive"));
  steps_.push_back(
      {Handle<dnnl_primitive_t>(made, dnnl_->primitive_destroy), std::move(arguments)});
  return {};
}

// scores = Q K^T * scale, plus -infinity for masked pairs.
Status Attention::add_scores(const Problem& problem, const dnnl_memory_desc_t& q,
                             const dnnl_memory_desc_t& k, const dnnl_memory_desc_t& scores,
                             dnnl_memory_t from_q, dnnl_memory_t from_k, dnnl_memory_t to) {
  dnnl_primitive_attr_t made = nullptr;
  FLASHCORE_RETURN_IF_ERROR(status_of(dnnl_->attr_create(&made), "attributes"));
  const Handle<dnnl_primitive_attr_t> attr(made, dnnl_->attr_destroy);
  const float scale = 1 / std::sqrt(static_cast<float>(problem.q.shape[3]));
  FLASHCORE_RETURN_IF_ERROR(status_of(dnnl_->set_scales(made, 1, 0, &scale), "the scale"));
  dnnl_matmul_desc_t product;
  FLASHCORE_RETURN_IF_ERROR(
      status_of(dnnl_->matmul_desc(&product, &q, &k, nullptr, &scores), "a product"));
  FLASHCORE_RETURN_IF_ERROR(
      add(product, made, {{DNNL_ARG_SRC, from_q}, {DNNL_ARG_WEIGHTS, from_k}, {DNNL_ARG_DST, to}}));
  return problem.causal ? add_mask(problem, scores, to) : Status();
}

Status Attention::add_mask(const Problem& problem, const dnnl_memory_desc_t& scores,
                           dnnl_memory_t to) {
  const int64_t queries = problem.q.shape[2], keys = problem.k.shape[2];
  mask_.assign(static_cast<size_t>(queries * keys), 0);
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = std::max<int64_t>(keys - queries + i + 1, 0); j < keys; ++j) {
      mask_[static_cast<size_t>(i * keys + j)] = -std::numeric_limits<float>::infinity();
    }
  }
  const Dims dims = {1, 1, queries, keys};
  const Result<dnnl_memory_desc_t> desc = describe(dnnl_f32, dims, packed(dims));
  if (!desc.ok()) return desc.status();
  const Result<dnnl_memory_t> mask = memory(*desc, mask_.data());
  if (!mask.ok()) return mask.status();
  const dnnl_memory_desc_t mask_desc = *desc;
  dnnl_binary_desc_t addition;
  FLASHCORE_RETURN_IF_ERROR(status_of(
      dnnl_->binary_desc(&addition, dnnl_binary_add, &scores, &mask_desc, &scores), "the mask"));
  return add(addition, nullptr,
             {{DNNL_ARG_SRC_0, to}, {DNNL_ARG_SRC_1, *mask}, {DNNL_ARG_DST, to}});
}

Status Attention::prepare(const Problem& problem, const Arguments& arguments) {
  const bool half = problem.q.dtype == DType::bf16;
  if (!half && problem.q.dtype != DType::f32)
    return unsupported("onednn: runs f32 and bf16 only here");
  const int64_t group = problem.q.shape[1] / problem.k.shape[1];
  if (group > 1 && problem.q.shape[2] > 1) {
    return unsupported("onednn: runs grouped heads with one query only here");
  }
  // The queries of one KV head are the rows of one product.
  const Dims q_dims = {problem.q.shape[0], problem.k.shape[1], problem.q.shape[2] * group,
                       problem.q.shape[3]};
  const Dims k_dims = {problem.k.shape[0], problem.k.shape[1], problem.k.shape[3],
                       problem.k.shape[2]};
  const Dims v_dims = {k_dims[0], k_dims[1], k_dims[3], problem.v.shape[3]};
  const Dims s_dims = {q_dims[0], q_dims[1], q_dims[2], k_dims[3]};
  const Dims o_dims = {q_dims[0], q_dims[1], q_dims[2], v_dims[3]};
  const auto scores = static_cast<size_t>(s_dims[0] * s_dims[1] * s_dims[2] * s_dims[3]);
  if (4.0 * static_cast<double>(scores) > kLargestScores) {
    return unsupported("onednn: its scores would take more than {:.0f} GB", kLargestScores * 1e-9);
  }
  scores_.resize(4 * scores);
  if (half) weights_.resize(2 * scores);

  dnnl_engine_t engine = nullptr;
  FLASHCORE_RETURN_IF_ERROR(status_of(dnnl_->engine_create(&engine, dnnl_cpu, 0), "an engine"));
  engine_ = {engine, dnnl_->engine_destroy};
  dnnl_stream_t stream = nullptr;
  FLASHCORE_RETURN_IF_ERROR(
      status_of(dnnl_->stream_create(&stream, engine, dnnl_stream_default_flags), "a stream"));
  stream_ = {stream, dnnl_->stream_destroy};

  const dnnl_data_type_t type = half ? dnnl_bf16 : dnnl_f32;
  const Dims kt_strides = {k_dims[1] * k_dims[2] * k_dims[3], k_dims[2] * k_dims[3], 1, k_dims[2]};
  const Result<dnnl_memory_desc_t> q = describe(type, q_dims, packed(q_dims));
  const Result<dnnl_memory_desc_t> k = describe(type, k_dims, kt_strides);
  const Result<dnnl_memory_desc_t> v = describe(type, v_dims, packed(v_dims));
  const Result<dnnl_memory_desc_t> o = describe(type, o_dims, packed(o_dims));
  const Result<dnnl_memory_desc_t> s = describe(dnnl_f32, s_dims, packed(s_dims));
  const Result<dnnl_memory_desc_t> p = describe(type, s_dims, packed(s_dims));
  for (const auto* desc : {&q, &k, &v, &o, &s, &p}) FLASHCORE_RETURN_IF_ERROR(desc->status());
  const Result<dnnl_memory_t> in_q = memory(*q, arguments.q), in_k = memory(*k, arguments.k),
                              in_v = memory(*v, arguments.v), out = memory(*o, arguments.o),
                              in_s = memory(*s, scores_.data()),
                              in_p = memory(*p, half ? weights_.data() : scores_.data());
  for (const auto* one : {&in_q, &in_k, &in_v, &out, &in_s, &in_p}) {
    FLASHCORE_RETURN_IF_ERROR(one->status());
  }
  FLASHCORE_RETURN_IF_ERROR(add_scores(problem, *q, *k, *s, *in_q, *in_k, *in_s));
  const dnnl_memory_desc_t from = *s, to = *p;
  dnnl_softmax_v2_desc_t softmax;
  FLASHCORE_RETURN_IF_ERROR(
      status_of(dnnl_->softmax_desc(&softmax, dnnl_forward_inference, dnnl_softmax_accurate, &from,
                                    &to, kDims - 1),
                "a softmax"));
  FLASHCORE_RETURN_IF_ERROR(add(softmax, nullptr, {{DNNL_ARG_SRC, *in_s}, {DNNL_ARG_DST, *in_p}}));
  const dnnl_memory_desc_t values = *v, result = *o;
  dnnl_matmul_desc_t product;
  FLASHCORE_RETURN_IF_ERROR(
      status_of(dnnl_->matmul_desc(&product, &to, &values, nullptr, &result), "a product"));
  return add(product, nullptr,
             {{DNNL_ARG_SRC, *in_p}, {DNNL_ARG_WEIGHTS, *in_v}, {DNNL_ARG_DST, *out}});
}

Status Attention::run() {
  for (const Step& step : steps_) {
    FLASHCORE_RETURN_IF_ERROR(
        status_of(dnnl_->execute(step.primitive.get(), stream_.get(),
                                 static_cast<int>(step.arguments.size()), step.arguments.data()),
                  "a run"));
  }
  return status_of(dnnl_->stream_wait(stream_.get()), "a run");
}

class OneDnnPeer final : public NativePeer {
 public:
  OneDnnPeer(std::shared_ptr<const Library> dnnl, int threads)
      : dnnl_(std::move(dnnl)), threads_(threads) {}

  std::string name() const override { return "onednn"; }
  std::string version() const override {
    const dnnl_version_t* const v = dnnl_->version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
  }

  Result<TimedCall> prepare(const Problem& problem, const Arguments& arguments) override {
    dnnl_->set_threads(threads_);
    auto attention = std::make_shared<Attention>(dnnl_);
    FLASHCORE_RETURN_IF_ERROR(attention->prepare(problem, arguments));
    return TimedCall([attention](Stream) { return attention->run(); });
  }

 private:
  std::shared_ptr<const Library> dnnl_;
  int threads_;
};

}  // namespace

PeerResult make_onednn_peer(int threads) {
  Result<std::shared_ptr<const Library>> dnnl = Library::open();
  if (!dnnl.ok()) return dnnl.status();
  return std::unique_ptr<NativePeer>(std::make_unique<OneDnnPeer>(std::move(*dnnl), threads));
}

}  // namespace flashcore::bench
