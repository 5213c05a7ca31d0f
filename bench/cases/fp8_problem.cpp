#include "bench/cases/fp8_problem.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/tensors/random.hpp"
#include "cpu/parallel.hpp"

namespace flashcore::bench {
namespace {

constexpr float kLargestE4m3 = 448;

// Every head has its own random stream, so that heads can be drawn in parallel.
void quantise(HostTensor& values, HostTensor& scales, uint64_t seed) {
  const auto& shape = values.desc().shape;
  const int64_t heads = shape[0] * shape[1], elements = shape[2] * shape[3];
  const int threads = heads * elements < (int64_t{1} << 20) ? 1 : 0;
  cpu::parallel_for(heads, threads, [&](int64_t head) {
    Random random(Random(seed + static_cast<uint64_t>(head)).bits());
    std::vector<float> drawn(static_cast<size_t>(elements));
    float largest = 0;
    for (float& value : drawn) {
      value = static_cast<float>(random.normal());
      largest = std::max(largest, std::abs(value));
    }
    const float scale = largest == 0 ? 1 : largest / kLargestE4m3;
    scales.set(head, scale);
    for (int64_t i = 0; i < elements; ++i) {
      values.set(head * elements + i, drawn[static_cast<size_t>(i)] / scale);
    }
  });
}

}  // namespace

Problem with_fp8_inputs(const Problem& problem) {
  Problem out = problem;
  out.o.dtype = DType::f16;
  for (TensorDesc* input : {&out.q, &out.k, &out.v}) input->dtype = DType::f8e4m3;
  out.q_scale = TensorDesc::contiguous(DType::f32, {out.q.shape[0], out.q.shape[1]});
  out.k_scale = TensorDesc::contiguous(DType::f32, {out.k.shape[0], out.k.shape[1], 1});
  out.v_scale = out.k_scale;
  return out;
}

void fill_fp8_inputs(HostProblem& host, uint64_t seed) {
  Random seeds(seed);
  for (const char* name : {"q", "k", "v"}) {
    quantise(host.at(name), host.at(std::string(name) + "_scale"), seeds.bits());
  }
}

}  // namespace flashcore::bench
