#include "cpu/largest.hpp"

#include <atomic>
#include <cmath>
#include <limits>

namespace flashcore::cpu {
namespace {

void clear(const LargestOutput& output, float* data, float least) {
  if (!output.present) return;
  for (int64_t b = 0; b < output.batches; ++b) {
    for (int64_t h = 0; h < output.heads; ++h) data[output.at(b, h)] = least;
  }
}

void raise(const LargestOutput& output, float* data, int64_t batch, int64_t head, float value) {
  if (!output.present) return;
  if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();  // one NaN for all orders
  const std::atomic_ref<float> element(data[output.at(batch, head)]);
  float seen = element.load(std::memory_order_relaxed);
  while (!std::isnan(seen) && !(value <= seen)) {
    if (element.compare_exchange_weak(seen, value, std::memory_order_relaxed)) return;
  }
}

}  // namespace

void clear_largest(const ForwardProblem& p, const Arguments& args) {
  for (const LargestValue& one : kLargestOutputs) clear(p.*one.output, args.*one.data, one.least);
}

void add_largest(const ForwardProblem& p, const Arguments& args, int64_t batch, int64_t head,
                 const std::array<float, kLargestOutputs.size()>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const LargestValue& one = kLargestOutputs[i];
    raise(p.*one.output, args.*one.data, batch, head, values[i]);
  }
}

}  // namespace flashcore::cpu
