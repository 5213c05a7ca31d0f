#include "bench/tensors/quantized.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using Scales = QuantizeChoice::Scales;

int64_t batch_of(const Problem& problem, std::string_view name) {
  const bool is_q = name == "q";
  const std::optional<TensorDesc>& starts = is_q ? problem.cu_seqlens_q : problem.cu_seqlens_kv;
  if (starts) return starts->shape[0] - 1;
  return (is_q ? problem.q : problem.k).shape[0];
}

// The rows of k and v that their scales' blocks cover.
int64_t rows_of_scales(const Problem& problem) {
  if (!problem.cu_seqlens_kv) return problem.k.shape[2];
  return problem.max_seqlen_kv == 0 ? problem.k.shape[0] : problem.max_seqlen_kv;
}

TensorDesc scale_of(const Problem& problem, const QuantizeChoice& choice, std::string_view name) {
  const int64_t batch = choice.scales == Scales::tensor ? 1 : batch_of(problem, name);
  const int64_t all_heads = (name == "q" ? problem.q : problem.k).shape[1];
  const int64_t heads = choice.scales == Scales::head ? all_heads : 1;
  if (name == "q") return TensorDesc::contiguous(DType::f32, {batch, heads});
  const int64_t rows = rows_of_scales(problem);
  const int64_t block = choice.kv_block == 0 ? std::max<int64_t>(rows, 1) : choice.kv_block;
  return TensorDesc::contiguous(DType::f32, {batch, heads, (rows + block - 1) / block});
}

Status check_smoothing(const Problem& problem) {
  if (problem.sinks) {
    return invalid(
        "sinks: are given with a smoothed k, wanted one of them: a sink is compared with "
        "scores, which smoothing shifts");
  }
  if (problem.softcap > 0) {
    return invalid(
        "softcap: is {} with a smoothed k, wanted one of them: a softcap changes when "
        "scores are shifted",
        problem.softcap);
  }
  if (problem.page_table || problem.kv_indices) {
    return invalid(
        "{}: is given with a smoothed k, wanted keys in one piece: a page has no mean of "
        "its entry",
        problem.page_table ? "page_table" : "kv_indices");
  }
  return {};
}

// An error of quantize about its x, with the problem's tensor name.
Status named(const Status& status, std::string_view name) {
  std::string sentence = status.message();
  if (sentence.starts_with("x: ")) sentence = std::string(name) + sentence.substr(1);
  return {status.code(), sentence};
}

}  // namespace

Result<Problem> quantized_problem(const Problem& problem, const QuantizeChoice& choice) {
  if (choice.smooth_k) FLASHCORE_RETURN_IF_ERROR(check_smoothing(problem));
  Problem out = problem;
  if (!choice.keep_q) {
    out.q.dtype = choice.dtype;
    out.q_scale = scale_of(problem, choice, "q");
  }
  out.k.dtype = out.v.dtype = choice.dtype;
  out.k_scale = scale_of(problem, choice, "k");
  out.v_scale = scale_of(problem, choice, "v");
  out.kv_scale_block = choice.kv_block;
  return out;
}

Quantizer cpu_quantizer(int threads) {
  return [threads](const Quantize& what, const QuantizeTensors& tensors) {
    const auto lengths = [](const HostTensor* tensor) {
      return tensor == nullptr ? nullptr : static_cast<const int32_t*>(tensor->data());
    };
    PlanOptions options;
    options.threads = threads;
    return quantize(
        what,
        {.x = tensors.x.data(),
         .x_out = tensors.x_out.data(),
         .scale = static_cast<float*>(tensors.scale.data()),
         .mean = tensors.mean == nullptr ? nullptr : static_cast<float*>(tensors.mean->data()),
         .cu_seqlens = lengths(tensors.cu_seqlens),
         .seqlens = lengths(tensors.seqlens)},
        options);
  };
}

Result<QuantizedProblem> quantized(const HostProblem& wide, const QuantizeChoice& choice,
                                   const Quantizer& quantizer) {
  const Problem& problem = wide.problem;
  Result<Problem> narrow = quantized_problem(problem, choice);
  if (!narrow.ok()) return narrow.status();
  QuantizedProblem out;
  out.host = allocate(*narrow);
  out.host.dropout_seed = wide.dropout_seed;
  out.host.dropout_offset = wide.dropout_offset;
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    if (!is_output(name) && out.host.at(name).desc().dtype == desc.dtype) {
      out.host.at(name) = wide.at(name);
    }
  });
  const bool in_pages = problem.page_table || problem.kv_indices;
  for (const std::string name : {"q", "k", "v"}) {
    const bool is_q = name == "q";
    if (is_q && choice.keep_q) continue;
    const char* const starts = is_q ? "cu_seqlens_q" : "cu_seqlens_kv";
    const char* const lengths = is_q ? "seqlens_q" : "seqlens_kv";
    QuantizeTensors tensors{
        .x = wide.at(name), .x_out = out.host.at(name), .scale = out.host.at(name + "_scale")};
    Quantize what;
    what.x = tensors.x.desc();
    what.x_out = tensors.x_out.desc();
    what.scale = tensors.scale.desc();
    what.scale_block = is_q ? 0 : choice.kv_block;
    if (wide.has(starts)) {
      tensors.cu_seqlens = &wide.at(starts);
      what.cu_seqlens = tensors.cu_seqlens->desc();
      what.max_seqlen = is_q ? problem.max_seqlen_q : problem.max_seqlen_kv;
    }
    if (wide.has(lengths) && (is_q || !in_pages)) {  // unknown for pages
      tensors.seqlens = &wide.at(lengths);
      what.seqlens = tensors.seqlens->desc();
    }
    if (name == "k" && choice.smooth_k) {
      const auto width = problem.k.shape[static_cast<size_t>(problem.k.rank - 1)];
      what.mean =
          TensorDesc::contiguous(DType::f32, {batch_of(problem, "k"), problem.k.shape[1], width});
      tensors.mean = &out.k_mean.emplace(*what.mean);
    }
    if (const Status status = quantizer(what, tensors); !status.ok()) return named(status, name);
  }
  return out;
}

}  // namespace flashcore::bench
