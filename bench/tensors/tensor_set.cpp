#include "bench/tensors/tensor_set.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "bench/tensors/random.hpp"

namespace flashcore::bench {
namespace {

struct RequiredTensor {
  std::string_view name;
  TensorDesc Problem::*desc;
};

struct OptionalTensor {
  std::string_view name;
  std::optional<TensorDesc> Problem::*desc;
};

constexpr std::array<RequiredTensor, 4> kRequired = {
    {{"q", &Problem::q}, {"k", &Problem::k}, {"v", &Problem::v}, {"o", &Problem::o}}};

constexpr std::array<OptionalTensor, 14> kOptional = {{{"lse", &Problem::lse},
                                                       {"bias", &Problem::bias},
                                                       {"mask", &Problem::mask},
                                                       {"alibi_slopes", &Problem::alibi_slopes},
                                                       {"sinks", &Problem::sinks},
                                                       {"q_scale", &Problem::q_scale},
                                                       {"k_scale", &Problem::k_scale},
                                                       {"v_scale", &Problem::v_scale},
                                                       {"cu_seqlens_q", &Problem::cu_seqlens_q},
                                                       {"cu_seqlens_kv", &Problem::cu_seqlens_kv},
                                                       {"seqlens_q", &Problem::seqlens_q},
                                                       {"seqlens_kv", &Problem::seqlens_kv},
                                                       {"causal_offsets", &Problem::causal_offsets},
                                                       {"dropout_state", &Problem::dropout_state}}};

}  // namespace

void for_each_tensor(const Problem& problem,
                     const std::function<void(std::string_view, const TensorDesc&)>& visit) {
  for (const RequiredTensor& tensor : kRequired) visit(tensor.name, problem.*tensor.desc);
  for (const OptionalTensor& tensor : kOptional) {
    if (problem.*tensor.desc) visit(tensor.name, *(problem.*tensor.desc));
  }
}

bool set_tensor(Problem& problem, std::string_view name, const TensorDesc& desc) {
  for (const RequiredTensor& tensor : kRequired) {
    if (tensor.name == name) return problem.*tensor.desc = desc, true;
  }
  for (const OptionalTensor& tensor : kOptional) {
    if (tensor.name == name) return problem.*tensor.desc = desc, true;
  }
  return false;
}

bool is_output(std::string_view name) { return name == "o" || name == "lse"; }

Arguments bind(const Problem& problem, const std::function<void*(std::string_view)>& pointer_of) {
  Arguments args;
  args.q = pointer_of("q");
  args.k = pointer_of("k");
  args.v = pointer_of("v");
  args.o = pointer_of("o");
  if (problem.lse) args.lse = pointer_of("lse");
  if (problem.bias) args.bias = pointer_of("bias");
  if (problem.mask) args.mask = pointer_of("mask");
  const auto floats = [&](const std::optional<TensorDesc>& desc, std::string_view name) {
    return desc ? static_cast<const float*>(pointer_of(name)) : nullptr;
  };
  const auto ints = [&](const std::optional<TensorDesc>& desc, std::string_view name) {
    return desc ? static_cast<const int32_t*>(pointer_of(name)) : nullptr;
  };
  args.alibi_slopes = floats(problem.alibi_slopes, "alibi_slopes");
  args.sinks = floats(problem.sinks, "sinks");
  args.q_scale = floats(problem.q_scale, "q_scale");
  args.k_scale = floats(problem.k_scale, "k_scale");
  args.v_scale = floats(problem.v_scale, "v_scale");
  args.cu_seqlens_q = ints(problem.cu_seqlens_q, "cu_seqlens_q");
  args.cu_seqlens_kv = ints(problem.cu_seqlens_kv, "cu_seqlens_kv");
  args.seqlens_q = ints(problem.seqlens_q, "seqlens_q");
  args.seqlens_kv = ints(problem.seqlens_kv, "seqlens_kv");
  args.causal_offsets = ints(problem.causal_offsets, "causal_offsets");
  if (problem.dropout_state) {
    args.dropout_state = static_cast<const int64_t*>(pointer_of("dropout_state"));
  }
  return args;
}

Arguments HostProblem::arguments() {
  Arguments args = bind(problem, [this](std::string_view name) { return at(name).data(); });
  args.dropout_seed = dropout_seed;
  args.dropout_offset = dropout_offset;
  return args;
}

HostProblem allocate(const Problem& problem) {
  HostProblem host;
  host.problem = problem;
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    host.tensors.emplace(name, HostTensor(desc));
  });
  return host;
}

void fill_inputs(HostProblem& host, uint64_t seed) {
  Random random(seed);
  host.dropout_seed = random.bits();
  host.dropout_offset = random.bits();
  const Problem& problem = host.problem;
  const bool packed = problem.cu_seqlens_q.has_value();
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    HostTensor& tensor = host.at(name);
    if (is_output(name)) return;
    if (name == "mask") {
      tensor.fill([&] { return random.chance(0.75) ? 1.0 : 0.0; });
    } else if (name == "alibi_slopes") {
      const int64_t heads = desc.shape[static_cast<size_t>(desc.rank - 1)];
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        tensor.set(
            i, std::exp2(-8.0 * static_cast<double>(i % heads + 1) / static_cast<double>(heads)));
      }
    } else if (name.ends_with("_scale")) {
      tensor.fill([&] { return 0.5 + 1.5 * random.uniform(); });
    } else if (name.starts_with("cu_seqlens")) {
      const int64_t total = name == "cu_seqlens_q" ? problem.q.shape[0] : problem.k.shape[0];
      const int64_t batch = desc.shape[0] - 1;
      for (int64_t b = 0; b <= batch; ++b) {
        tensor.set(b, static_cast<double>(batch > 0 ? total * b / batch : 0));
      }
    } else if (name == "seqlens_q" || name == "seqlens_kv") {
      const TensorDesc& rows = name == "seqlens_q" ? problem.q : problem.k;
      tensor.fill([&] { return static_cast<double>(rows.shape[packed ? 0 : 2]); });
    } else if (name == "causal_offsets") {
      tensor.fill([] { return 0.0; });
    } else if (name == "dropout_state") {
      fill_dropout_state(host);
    } else {
      tensor.fill([&] { return random.normal(); });
    }
  });
}

void fill_dropout_state(HostProblem& host) {
  const uint64_t state[] = {host.dropout_seed, host.dropout_offset};
  std::memcpy(host.at("dropout_state").data(), state, sizeof state);
}

void poison_outputs(HostProblem& host) {
  for (auto& [name, tensor] : host.tensors) {
    if (is_output(name)) tensor.poison();
  }
}

HostProblem make_host_problem(const Problem& problem, uint64_t seed) {
  HostProblem host = allocate(problem);
  fill_inputs(host, seed);
  return host;
}

}  // namespace flashcore::bench
