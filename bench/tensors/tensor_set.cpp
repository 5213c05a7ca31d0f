#include "bench/tensors/tensor_set.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "bench/tensors/random.hpp"
#include "problem/operands.hpp"

namespace flashcore::bench {
namespace {

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
  for (const auto& line : kOperands<Problem>) {
    if (const TensorDesc* const tensor = line.find(problem)) visit(line.name, *tensor);
  }
}

bool set_tensor(Problem& problem, std::string_view name, const TensorDesc& desc) {
  for (const auto& line : kOperands<Problem>) {
    if (line.name == name) return line.set(problem, desc), true;
  }
  return false;
}

bool v_is_in_k(const Problem& problem) {
  const TensorDesc &k = problem.k, &v = problem.v;
  constexpr int64_t kLatent = 576, kValues = 512;
  const auto last = static_cast<size_t>(k.rank - 1);
  return k.rank == v.rank && k.dtype == v.dtype && k.stride == v.stride &&
         k.shape[last] == kLatent && first_columns(k, kValues).shape == v.shape;
}

TensorDesc first_columns(TensorDesc desc, int64_t columns) {
  desc.shape[static_cast<size_t>(desc.rank - 1)] = columns;
  return desc;
}

bool is_output(std::string_view name) {
  if (name == "page_status") return false;  // it begins as 0
  return std::any_of(operands::kProblem.begin(), operands::kProblem.end(),
                     [&](const Line& line) { return line.is_output && line.name == name; });
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
  for (const auto& line : kOperands<Problem>) {
    const std::string_view place = line.name == "v" && v_is_in_k(problem) ? "k" : line.name;
    if (line.find(problem) != nullptr) line.bind(args, pointer_of(place));
  }
  return args;
}

std::string overrun(const HostTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.canaries_intact()) return overrun_sentence(name);
  }
  return {};
}

std::string unwritten(std::string_view name, const HostTensor& output) {
  return output.has_nan() ? unwritten_sentence(name) : std::string();
}

Arguments HostProblem::arguments() {
  Arguments args = bind(problem, [this](std::string_view name) { return at(name).data(); });
  args.dropout_seed = dropout_seed;
  args.dropout_offset = dropout_offset;
  return args;
}

Status run_on_cpu(const std::string& kernel, HostProblem& host, int threads) {
  PlanOptions options;
  options.kernel = kernel;
  options.threads = threads;
  const Result<Plan> plan = make_plan(host.problem, options);
  return plan.ok() ? plan->run(host.arguments()) : plan.status();
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
