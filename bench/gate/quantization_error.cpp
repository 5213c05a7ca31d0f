#include "bench/gate/quantization_error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace flashcore::bench {
namespace {

// scale * dot(q_i, mean) of every row, in the order of LSE.
std::vector<double> shifts(const HostProblem& wide, const HostTensor& mean) {
  const Problem& problem = wide.problem;
  const HostTensor& q = wide.at("q");
  const bool packed = problem.cu_seqlens_q.has_value();
  const int64_t heads = problem.q.shape[1], rows = problem.q.shape[packed ? 0 : 2];
  const int64_t width = problem.q.shape[packed ? 2 : 3], group = heads / problem.k.shape[1];
  const double scale = problem.softmax_scale ? static_cast<double>(*problem.softmax_scale)
                                             : 1 / std::sqrt(static_cast<double>(width));
  std::vector<double> out(static_cast<size_t>(q.elements() / std::max<int64_t>(width, 1)));
  int64_t entry = 0;
  for (size_t row = 0; row < out.size(); ++row) {
    const auto i = static_cast<int64_t>(row);
    const int64_t h = packed ? i % heads : i / rows % heads;
    if (packed) {  // entries ascend with the rows
      while (static_cast<int64_t>(wide.at("cu_seqlens_q").get(entry + 1)) <= i / heads) ++entry;
    } else {
      entry = i / rows / heads;
    }
    double sum = 0;
    for (int64_t d = 0; d < width; ++d) {
      sum += q.get(i * width + d) * mean.get((entry * problem.k.shape[1] + h / group) * width + d);
    }
    out[row] = scale * sum;
  }
  return out;
}

}  // namespace

Result<QuantizationError> quantization_error(const HostProblem& wide, const Reference& right,
                                             QuantizedProblem& narrow, int threads) {
  const Result<Reference> result = compute_reference(narrow.host, threads, false);
  if (!result.ok()) return result.status();
  QuantizationError error;
  double difference = 0, size = 0;
  for (size_t i = 0; i < right.o.size(); ++i) {
    const double r = right.o[i], off = std::abs(result->o[i] - r);
    if (!std::isfinite(r)) continue;
    error.max_scaled_error = std::max(error.max_scaled_error, off / std::max(1.0, std::abs(r)));
    difference += off * off;
    size += r * r;
  }
  error.relative_error = size == 0 ? 0 : std::sqrt(difference / size);
  if (right.lse.empty()) return error;
  std::vector<double> shift(right.lse.size());
  if (narrow.k_mean) shift = shifts(wide, *narrow.k_mean);
  for (size_t i = 0; i < right.lse.size(); ++i) {
    if (!std::isfinite(right.lse[i])) continue;
    error.lse_error = std::max(error.lse_error, std::abs(result->lse[i] + shift[i] - right.lse[i]));
  }
  return error;
}

}  // namespace flashcore::bench
