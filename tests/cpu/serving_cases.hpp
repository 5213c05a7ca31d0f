// Random merges and appends with their tensors, and their expected results: docs/semantics.md,
// written a second time in fp64. For every device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/tensors/host_tensor.hpp"
#include "bench/tensors/random.hpp"
#include "flashcore/serving.hpp"

namespace flashcore::testing {

using bench::HostTensor;
using bench::Random;

inline TensorDesc i32(int64_t count) { return TensorDesc::contiguous(DType::i32, {count}); }

struct MergeCase {
  Merge what;
  std::map<std::string, HostTensor> tensors;

  HostTensor& at(const std::string& name) { return tensors.at(name); }
  MergeArguments arguments() {
    return {.o_a = at("o_a").data(),
            .o_b = at("o_b").data(),
            .lse_a = static_cast<float*>(at("lse_a").data()),
            .lse_b = static_cast<float*>(at("lse_b").data()),
            .o = at("o").data(),
            .lse = what.lse ? static_cast<float*>(at("lse").data()) : nullptr};
  }
};

MergeCase random_merge(Random& random);
void expect_merged(MergeCase& one, const std::string& where);

struct AppendCase {
  Append what;
  std::map<std::string, HostTensor> tensors;

  HostTensor& at(const std::string& name) { return tensors.at(name); }
  bool has(const std::string& name) const { return tensors.contains(name); }
  HostTensor& add(const std::string& name, const TensorDesc& desc) {
    return tensors.emplace(name, HostTensor(desc)).first->second;
  }
  template <class T>
  T* pointer(const std::string& name) {
    return has(name) ? static_cast<T*>(at(name).data()) : nullptr;
  }
  AppendArguments arguments() {
    return {.k_new = at("k_new").data(),
            .v_new = at("v_new").data(),
            .k = at("k").data(),
            .v = at("v").data(),
            .seqlens_kv = pointer<int32_t>("seqlens_kv"),
            .seqlens_new = pointer<int32_t>("seqlens_new"),
            .cu_seqlens_new = pointer<int32_t>("cu_seqlens_new"),
            .page_table = pointer<int32_t>("page_table"),
            .kv_indptr = pointer<int32_t>("kv_indptr"),
            .kv_indices = pointer<int32_t>("kv_indices"),
            .cache_leftpad = pointer<int32_t>("cache_leftpad"),
            .page_status = pointer<int32_t>("page_status"),
            .k_scale = pointer<float>("k_scale"),
            .v_scale = pointer<float>("v_scale"),
            .rope_cos = pointer<float>("rope_cos"),
            .rope_sin = pointer<float>("rope_sin"),
            .q = pointer<void>("q"),
            .q_out = pointer<void>("q_out")};
  }
};

struct Sizes {
  int64_t batch, heads, heads_q, rows, dqk, dv, page, columns, pages;
  bool paged, flat, packed;
};

// Every page has one owner, so that no two rows share a location. least_rows: total over all entries, about; 0: few.
AppendCase random_append(Random& random, Sizes& s, int64_t least_rows = 0);

inline bool is_fp8_cache(const AppendCase& one) { return size_of(one.what.v.dtype) == 1; }

// An append to a cache whose V is stored transposed; fp8 in one piece only.
AppendCase with_transposed_v(const AppendCase& rows);

// Checks the cache (name "k" or "v") after an append, and everything else in it.
void expect_appended(AppendCase& before, AppendCase& after, const Sizes& s,
                     const std::string& where);

}  // namespace flashcore::testing
