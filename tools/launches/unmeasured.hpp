// What kernels compute since docs/evidence was measured: it has budgets, and is in no hash of machine
// code until the kernel is measured again.
#pragma once

#include "kernel/kernel.hpp"
#include "problem/entries.hpp"

namespace flashcore {

inline bool is_unmeasured(const Kernel& kernel, const ForwardProblem& p) {
  if (kernel.name != "decode_sm80") return false;
  return p.paging.present || p.tree_mask.present || p.bias.present || p.mask.present ||
         p.head_dim_qk > 128 || p.head_dim_v > 128;
}

inline bool is_unmeasured(const Kernel& kernel, const BackwardProblem& problem) {
  if (!kernel.name.starts_with("backward_sm90")) return false;
  const ForwardProblem& p = problem.forward;
  const int64_t d = p.head_dim_qk;
  return p.packed || p.seqlens_q.present || p.seqlens_kv.present || entries_vary(p) ||
         p.sinks.present || p.softcap > 0 || p.head_dim_v != d || (d != 64 && d != 128 && d != 256);
}

}  // namespace flashcore
