#include "bench/cases/problem_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "bench/tensors/backward_set.hpp"
#include "bench/tensors/tensor_set.hpp"

namespace flashcore::bench {
namespace {

std::string_view alignment_name(Alignment alignment) {
  switch (alignment) {
    case Alignment::top_left:
      return "top_left";
    case Alignment::bottom_right:
      return "bottom_right";
    case Alignment::given:
      break;
  }
  return "given";
}

std::span<const int64_t> shape_of(const TensorDesc& desc) {
  return {desc.shape.data(), static_cast<size_t>(desc.rank)};
}

}  // namespace

std::string tensor_text(const TensorDesc& desc) {
  return fmt::format("{} [{}]", to_string(desc.dtype), fmt::join(shape_of(desc), ", "));
}

std::string options_text(const Problem& problem) {
  std::vector<std::string> parts;
  const bool window = problem.window_left >= 0 || problem.window_right >= 0;
  if (problem.causal) parts.emplace_back("causal");
  if (window)
    parts.push_back(fmt::format("window {},{}", problem.window_left, problem.window_right));
  if (!parts.empty() || problem.alibi_slopes) {
    parts.push_back(fmt::format("{}", alignment_name(problem.alignment)));
  }
  if (problem.causal_offset != 0) parts.push_back(fmt::format("offset {}", problem.causal_offset));
  if (problem.softcap > 0) parts.push_back(fmt::format("softcap {}", problem.softcap));
  if (problem.softmax_scale) parts.push_back(fmt::format("scale {}", *problem.softmax_scale));
  if (problem.dropout_p > 0) parts.push_back(fmt::format("dropout {}", problem.dropout_p));
  if (problem.v_transposed) parts.emplace_back("v_transposed");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string problem_text(const Problem& problem) {
  std::vector<std::string> parts;
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    if (!is_output(name)) parts.push_back(fmt::format("{} {}", name, tensor_text(desc)));
  });
  if (std::string options = options_text(problem); !options.empty()) parts.push_back(options);
  return fmt::format("{}", fmt::join(parts, ", "));
}

nlohmann::ordered_json tensor_json(const TensorDesc& desc) {
  const auto rank = static_cast<size_t>(desc.rank);
  return {
      {"dtype", to_string(desc.dtype)},
      {"shape", std::vector(desc.shape.begin(), desc.shape.begin() + static_cast<long>(rank))},
      {"stride", std::vector(desc.stride.begin(), desc.stride.begin() + static_cast<long>(rank))}};
}

nlohmann::ordered_json problem_json(const Problem& problem) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    tensors[std::string(name)] = tensor_json(desc);
  });
  nlohmann::ordered_json out = {{"tensors", tensors},
                                {"causal", problem.causal},
                                {"alignment", alignment_name(problem.alignment)},
                                {"causal_offset", problem.causal_offset},
                                {"window", {problem.window_left, problem.window_right}},
                                {"softcap", problem.softcap},
                                {"softmax_scale", nullptr},
                                {"dropout_p", problem.dropout_p},
                                {"kv_scale_block", problem.kv_scale_block}};
  if (problem.softmax_scale) out["softmax_scale"] = *problem.softmax_scale;
  if (problem.v_transposed) out["v_transposed"] = true;
  return out;
}

nlohmann::ordered_json gradients_json(const Gradients& gradients) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for_each_gradient(gradients, [&](std::string_view name, const TensorDesc& desc) {
    out[std::string(name)] = tensor_json(desc);
  });
  return out;
}

}  // namespace flashcore::bench
