#include "bench/tensors/tensor_set.hpp"

#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

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

constexpr std::array<OptionalTensor, 24> kOptional = {
    {{"lse", &Problem::lse},
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
     {"dropout_state", &Problem::dropout_state},
     {"page_table", &Problem::page_table},
     {"kv_indptr", &Problem::kv_indptr},
     {"kv_indices", &Problem::kv_indices},
     {"kv_last_page_len", &Problem::kv_last_page_len},
     {"cache_leftpad", &Problem::cache_leftpad},
     {"page_status", &Problem::page_status},
     {"tree_mask", &Problem::tree_mask},
     {"o_scale", &Problem::o_scale},
     {"amax_o", &Problem::amax_o},
     {"amax_s", &Problem::amax_s}}};

// The largest length of an entry, in rows.
int64_t largest_length(const Problem& problem, std::string_view name) {
  const bool packed = problem.cu_seqlens_q.has_value();
  if (name == "seqlens_q") return problem.q.shape[packed ? 0 : 2];
  if (problem.max_seqlen_kv > 0) return problem.max_seqlen_kv;
  if (problem.page_table) return problem.page_table->shape[1] * problem.k.shape[2];
  if (problem.kv_indices) return problem.kv_indices->shape[0] * problem.k.shape[2];
  return problem.k.shape[packed ? 0 : 2];
}

// The starts of equal parts of `total`, and the end of the last one.
void fill_evenly(HostTensor& tensor, int64_t total) {
  const int64_t parts = tensor.desc().shape[0] - 1;
  for (int64_t b = 0; b <= parts; ++b) {
    tensor.set(b, static_cast<double>(parts > 0 ? total * b / parts : 0));
  }
}

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

bool is_output(std::string_view name) {
  return name == "o" || name == "lse" || name.starts_with("amax_");
}

void fill_pages(Random& random, const Problem& problem, HostTensor& table) {
  const int64_t pages = problem.k.shape[0];
  std::vector<int64_t> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = pages - 1; i > 0; --i) {
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.integer(0, i))]);
  }
  for (int64_t i = 0; i < table.elements() && pages > 0; ++i) {
    table.set(i, static_cast<double>(order[static_cast<size_t>(i % pages)]));
  }
}

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
  args.page_table = ints(problem.page_table, "page_table");
  args.kv_indptr = ints(problem.kv_indptr, "kv_indptr");
  args.kv_indices = ints(problem.kv_indices, "kv_indices");
  args.kv_last_page_len = ints(problem.kv_last_page_len, "kv_last_page_len");
  args.cache_leftpad = ints(problem.cache_leftpad, "cache_leftpad");
  args.tree_mask = ints(problem.tree_mask, "tree_mask");
  args.o_scale = floats(problem.o_scale, "o_scale");
  if (problem.amax_o) args.amax_o = static_cast<float*>(pointer_of("amax_o"));
  if (problem.amax_s) args.amax_s = static_cast<float*>(pointer_of("amax_s"));
  if (problem.page_status) args.page_status = static_cast<int32_t*>(pointer_of("page_status"));
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
      fill_evenly(tensor, name == "cu_seqlens_q" ? problem.q.shape[0] : problem.k.shape[0]);
    } else if (name == "seqlens_q" || name == "seqlens_kv") {
      tensor.fill([&] { return static_cast<double>(largest_length(problem, name)); });
    } else if (name == "page_table" || name == "kv_indices") {
      fill_pages(random, problem, tensor);
    } else if (name == "kv_indptr") {
      const int64_t pages = problem.kv_indices ? problem.kv_indices->shape[0] : 0;
      fill_evenly(tensor, pages);
    } else if (name == "kv_last_page_len") {
      tensor.fill([&] { return static_cast<double>(problem.k.shape[2]); });
    } else if (name == "causal_offsets" || name == "cache_leftpad" || name == "page_status") {
      tensor.fill([] { return 0.0; });
    } else if (name == "tree_mask") {
      tensor.fill([&] { return static_cast<double>(static_cast<int32_t>(random.bits())); });
    } else if (name == "dropout_state") {
      fill_dropout_state(host);
    } else {
      tensor.fill([&] { return random.normal(); });
    }
  });
}

DropoutDraw dropout_draw(const HostProblem& host) {
  if (!host.has("dropout_state")) return {host.dropout_seed, host.dropout_offset};
  const HostTensor& state = host.at("dropout_state");
  const auto* const seed = static_cast<const uint64_t*>(state.data());
  return {seed[0], seed[state.desc().stride[0]]};
}

void set_dropout_state(HostTensor& state, const DropoutDraw& draw) {
  auto* const seed = static_cast<uint64_t*>(state.data());
  seed[0] = draw.seed;
  seed[state.desc().stride[0]] = draw.offset;
}

void fill_dropout_state(HostProblem& host) {
  set_dropout_state(host.at("dropout_state"), {host.dropout_seed, host.dropout_offset});
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
