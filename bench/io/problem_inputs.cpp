#include "bench/io/problem_inputs.hpp"

#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

double gibibytes(double bytes) { return bytes / (1024.0 * 1024.0 * 1024.0); }

}  // namespace

Status check_memory(const Problem& problem) {
  double bytes = 0;
  for_each_tensor(problem,
                  [&](std::string_view, const TensorDesc& desc) { bytes += element_bytes(desc); });
  const auto available = static_cast<double>(devices().front().memory_bytes);
  if (available <= 0 || bytes <= available) return {};
  return {
      StatusCode::out_of_memory,
      fmt::format("memory: the tensors take {:.1f} GiB, wanted at most the {:.1f} of this machine",
                  gibibytes(bytes), gibibytes(available))};
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

}  // namespace flashcore::bench
