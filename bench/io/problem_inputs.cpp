#include "bench/io/problem_inputs.hpp"

#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

double gibibytes(double bytes) { return bytes / (1024.0 * 1024.0 * 1024.0); }

double bytes_of(const Problem& problem) {
  double bytes = 0;
  for_each_tensor(problem,
                  [&](std::string_view, const TensorDesc& desc) { bytes += element_bytes(desc); });
  return bytes;
}

Status check_bytes(double bytes) {
  const auto available = static_cast<double>(devices().front().memory_bytes);
  if (available <= 0 || bytes <= available) return {};
  return {
      StatusCode::out_of_memory,
      fmt::format("memory: the tensors take {:.1f} GiB, wanted at most the {:.1f} of this machine",
                  gibibytes(bytes), gibibytes(available))};
}

}  // namespace

Status check_memory(const Problem& problem) { return check_bytes(bytes_of(problem)); }

Status check_memory(const Problem& problem, const Gradients& gradients) {
  double bytes = bytes_of(problem);
  for_each_gradient(
      gradients, [&](std::string_view, const TensorDesc& desc) { bytes += element_bytes(desc); });
  return check_bytes(bytes);
}

Result<HostProblem> ProblemInputs::load() const {
  FLASHCORE_RETURN_IF_ERROR(check_memory(problem));
  HostProblem host;
  if (sources.empty()) {
    host = make_host_problem(problem, seed);
  } else {
    host.problem = problem;
    Status status;
    for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
      if (!status.ok()) return;
      const auto source = sources.find(name);
      if (source == sources.end()) {
        host.tensors.emplace(name, HostTensor(desc));  // an output
        return;
      }
      Result<HostTensor> tensor = read_tensor(source->second, desc);
      status = tensor.status();
      if (status.ok()) host.tensors.emplace(name, std::move(*tensor));
    });
    if (!status.ok()) return status;
  }
  host.dropout_seed = dropout_seed;
  host.dropout_offset = dropout_offset;
  return host;
}

Result<HostBackward> ProblemInputs::load(const Gradients& gradients) const {
  FLASHCORE_RETURN_IF_ERROR(check_memory(problem, gradients));
  Result<HostProblem> forward = load();
  if (!forward.ok()) return forward.status();
  HostBackward host = add_gradients(std::move(*forward), gradients, seed);
  for (auto& [name, tensor] : host.tensors) {
    const auto source = sources.find(name);
    if (is_gradient_output(name) || source == sources.end()) continue;
    Result<HostTensor> read = read_tensor(source->second, tensor.desc());
    if (!read.ok()) return read.status();
    tensor = std::move(*read);
  }
  return host;
}

}  // namespace flashcore::bench
