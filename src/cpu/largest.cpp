#include "cpu/largest.hpp"

#include <atomic>
#include <cmath>
#include <limits>

namespace flashcore::cpu {
namespace {

void clear(const LargestOutput& output, float* data) {
  if (!output.present) return;
  for (int64_t b = 0; b < output.batches; ++b) {
    for (int64_t h = 0; h < output.heads; ++h) data[output.at(b, h)] = 0;
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
  clear(p.amax_o, args.amax_o);
  clear(p.amax_s, args.amax_s);
}

void add_largest(const ForwardProblem& p, const Arguments& args, int64_t batch, int64_t head,
                 float largest_o, float largest_p) {
  raise(p.amax_o, args.amax_o, batch, head, largest_o);
  raise(p.amax_s, args.amax_s, batch, head, largest_p);
}

}  // namespace flashcore::cpu
