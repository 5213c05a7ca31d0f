// What forward_converted:fp8, two or three launches, promises on a GPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/cases/fp8_problem.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "tests/cuda/device/promises.hpp"

namespace flashcore {
namespace {

// What comes between the conversions, and after them.
struct Subject {
  std::string name;
  DType o_dtype = DType::bf16;
  bool has_lse = false, has_largest = false, early = false;
  int64_t seqlen = 300;
  DType k_dtype = DType::f8e4m3, v_dtype = DType::f8e4m3;
};

Problem problem_of(const Subject& s) {
  Problem p;
  p.q = p.o = TensorDesc::contiguous(DType::bf16, {2, 4, s.seqlen, 64});
  p.k = p.v = TensorDesc::contiguous(DType::bf16, {2, 2, s.seqlen, 64});
  p = bench::with_fp8_inputs(p);
  p.k.dtype = s.k_dtype, p.v.dtype = s.v_dtype;
  p.o.dtype = s.o_dtype;
  if (s.has_lse) p.lse = TensorDesc::contiguous(DType::f32, {2, 4, s.seqlen});
  if (s.has_largest) p.amax_o = TensorDesc::contiguous(DType::f32, {2, 4});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  return p;
}

// Every fourth seed has the longest entry.
bench::HostProblem made(const Subject& s, uint64_t seed) {
  bench::HostProblem host = bench::allocate(problem_of(s));
  bench::fill_fp8_inputs(host, seed);
  const int64_t lengths[] = {0, 1, 257, s.seqlen};
  host.at("seqlens_kv").set(0, static_cast<double>(lengths[seed % 4]));
  host.at("seqlens_kv").set(1, seed % 4 == 3 ? 100 : 3);
  return host;
}

std::vector<Promised> promises() {
  std::vector<Promised> all;
  for (const Subject& s :
       {Subject{"bf16"}, Subject{"early", DType::bf16, false, false, true},
        Subject{"f16_lse", DType::f16, true}, Subject{"e4m3_largest", DType::f8e4m3, true, true},
        Subject{"long", DType::f32, false, true, false, 1500},
        Subject{"mixed", DType::f16, true, false, false, 300, DType::f8e4m3, DType::f8e5m2},
        Subject{"mixed_keys", DType::bf16, false, true, false, 300, DType::f8e5m2,
                DType::f8e4m3}}) {
    PlanOptions options = on_gpu("forward_converted:fp8");
    options.early_start = s.early;
    all.push_back({s.name, options, [s](int64_t, uint64_t seed) { return made(s, seed); }});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(ForwardConverted, Promises, testing::ValuesIn(promises()));

}  // namespace
}  // namespace flashcore
