#include "call_cases.hpp"

#include <cstdint>

#include "plan/cuda_calls.hpp"
#include "problem/status.hpp"
#include "runs.hpp"

namespace flashcore {
namespace {

using fake::any;

constexpr int64_t kAligned = 64, kUnaligned = 60;  // head dimensions

template <class What, class Arguments>
std::function<Status(const DeviceInfo&)> call(const What& what, const Arguments& args) {
  return [=](const DeviceInfo& device) {
    const auto problem = resolve(what);
    return problem.ok() ? run_on_gpu(*problem, args, device, {}) : problem.status();
  };
}

Merge merge_case() {
  Merge what;
  what.o_a = what.o_b = what.o = TensorDesc::contiguous(DType::bf16, {1, 8, 512, kAligned});
  what.lse_a = what.lse_b = TensorDesc::contiguous(DType::f32, {1, 8, 512});
  return what;
}

Append append_case(DType type, DType cache, int64_t head_dim) {
  Append what;
  what.k_new = what.v_new = TensorDesc::contiguous(type, {2, 8, 16, head_dim});
  what.k = what.v = TensorDesc::contiguous(cache, {2, 8, 1024, head_dim});
  what.seqlens_kv = TensorDesc::contiguous(DType::i32, {2});
  if (type != cache) what.k_scale = what.v_scale = TensorDesc::contiguous(DType::f32, {1, 1, 1});
  return what;
}

std::vector<Append> append_cases() {
  std::vector<Append> all;
  for (const int64_t head_dim : {kAligned, kUnaligned}) {
    all.push_back(append_case(DType::bf16, DType::bf16, head_dim));
  }
  all.push_back(append_case(DType::bf16, DType::f8e4m3, kAligned));
  all.push_back(append_case(DType::f32, DType::f32, kAligned));
  all.push_back(append_case(DType::bf16, DType::bf16, kAligned));
  all.back().rope_base = 10000;
  all.push_back(append_case(DType::f8e4m3, DType::f8e4m3, kAligned));
  all.back().v_transposed = true;
  all.back().v = TensorDesc::contiguous(DType::f8e4m3, {2, 8, kAligned, 1024});
  return all;
}

// Blocks that a tile holds, and that it does not.
std::vector<Quantize> quantize_cases() {
  std::vector<Quantize> all;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t head_dim : {kAligned, kUnaligned}) {
      for (const int64_t block : {0, 16}) {
        Quantize what;
        what.x = TensorDesc::contiguous(dtype, {1, 8, 4096, head_dim});
        what.x_out = TensorDesc::contiguous(DType::f8e4m3, {1, 8, 4096, head_dim});
        what.scale = TensorDesc::contiguous(DType::f32, {1, 8, block == 0 ? 1 : 4096 / block});
        what.scale_block = block;
        what.mean = TensorDesc::contiguous(DType::f32, {1, 8, head_dim});
        all.push_back(what);
      }
    }
  }
  return all;
}

Status transpose(const DeviceInfo& device) {
  const auto problem =
      resolve_transpose(TensorDesc::contiguous(DType::f8e4m3, {1, 8, 512, kAligned}),
                        TensorDesc::contiguous(DType::f8e4m3, {1, 8, kAligned, 512}));
  if (!problem.ok()) return problem.status();
  return run_on_gpu(*problem, any<const void>(), any<void>(), device, {});
}

}  // namespace

std::vector<CallCase> call_cases() {
  std::vector<CallCase> all = {{"transpose_v", transpose}};
  MergeArguments merged;
  merged.o_a = merged.o_b = merged.o = any<void>();
  merged.lse_a = merged.lse_b = any<float>();
  all.push_back({"merge", call(merge_case(), merged)});
  AppendArguments rows;
  rows.k_new = rows.v_new = rows.k = rows.v = any<void>();
  rows.seqlens_kv = any<const int32_t>();
  rows.k_scale = rows.v_scale = any<const float>();
  for (const Append& what : append_cases()) all.push_back({"append", call(what, rows)});
  QuantizeArguments x;
  x.x = x.x_out = any<void>();
  x.scale = x.mean = any<float>();
  for (const Quantize& what : quantize_cases()) all.push_back({"quantize_sm80", call(what, x)});
  return all;
}

}  // namespace flashcore
