// The problems of decode_test.cpp: entries of a cache in pages, for one kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "bench/cases/cases.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "problem/dtype.hpp"

namespace flashcore {

struct Subject {
  const char* kernel;
  DType dtype, kv_dtype;
  int64_t head_dim;
  int64_t seqlen_q;
  int64_t page_size;
  bool batch_invariant;
  bool tree = false;
  bool pairs = false;  // a bias and a mask, at any distances

  // MLA: one row for all heads, whose first columns are V. 70 heads are two tiles of rows.
  bool latent() const { return head_dim == 576; }
  int64_t head_dim_v() const { return latent() ? 512 : head_dim; }
  int64_t heads() const { return latent() ? 70 : 4; }
  int64_t kv_heads() const { return latent() ? 1 : 2; }
  int64_t capacity() const { return latent() ? 1500 : 700; }  // keys of an entry
};

inline std::ostream& operator<<(std::ostream& out, const Subject& s) {
  return out << s.kernel << " " << to_string(s.dtype) << " " << to_string(s.kv_dtype) << " "
             << s.head_dim << " Sq " << s.seqlen_q << " page " << s.page_size
             << (s.batch_invariant ? " invariant" : "") << (s.tree ? " tree" : "")
             << (s.pairs ? " bias and mask" : "");
}

inline Problem problem_of(const Subject& s, int64_t batch) {
  const int64_t pages = (s.capacity() + s.page_size - 1) / s.page_size;
  Problem p;
  p.q = TensorDesc::contiguous(s.dtype, {batch, s.heads(), s.seqlen_q, s.head_dim});
  p.o = bench::first_columns(p.q, s.head_dim_v());
  p.k = TensorDesc::contiguous(s.kv_dtype,
                               {batch * pages + 3, s.kv_heads(), s.page_size, s.head_dim});
  p.v = bench::first_columns(p.k, s.head_dim_v());
  p.lse = TensorDesc::contiguous(DType::f32, {batch, s.heads(), s.seqlen_q});
  p.page_table = TensorDesc::contiguous(DType::i32, {batch, pages});
  p.seqlens_kv = TensorDesc::contiguous(DType::i32, {batch});
  p.page_status = TensorDesc::contiguous(DType::i32, {1});
  p.causal = true;
  if (s.tree) {
    p.tree_mask = TensorDesc::contiguous(DType::i32, {1, s.seqlen_q, (s.seqlen_q + 31) / 32});
  }
  if (s.pairs) {
    const int64_t keys = pages * s.page_size, row = 3 * keys + 1, head = s.seqlen_q * row + 5;
    p.bias = TensorDesc::strided(DType::f16, {1, s.heads(), s.seqlen_q, keys},
                                 {s.heads() * head, head, row, 3});
    p.mask = TensorDesc::strided(DType::boolean, {1, 1, s.seqlen_q, keys}, {1, 1, keys + 1, 1});
  }
  if (size_of(s.kv_dtype) == 1) {
    p.k_scale = p.v_scale = TensorDesc::contiguous(DType::f32, {1, s.kv_heads(), 1});
  }
  return p;
}

// Pages in a random order, each entry's its own.
inline void fill_table(bench::HostProblem& host, uint64_t seed) {
  bench::HostTensor& table = host.at("page_table");
  std::vector<int64_t> pages(static_cast<size_t>(host.problem.k.shape[0]));
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int64_t>(i);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
  for (int64_t i = 0; i < table.elements(); ++i) {
    table.set(i, static_cast<double>(pages[static_cast<size_t>(i)]));
  }
  host.at("page_status").set(0, 0);
}

inline void set_lengths(bench::HostProblem& host, const std::vector<int64_t>& lengths) {
  for (size_t b = 0; b < lengths.size(); ++b) {
    host.at("seqlens_kv").set(static_cast<int64_t>(b), static_cast<double>(lengths[b]));
  }
}

inline bench::HostProblem make_problem(const Subject& s, const std::vector<int64_t>& lengths,
                                       uint64_t seed) {
  bench::HostProblem host =
      bench::make_host_problem(problem_of(s, static_cast<int64_t>(lengths.size())), seed);
  fill_table(host, seed);
  set_lengths(host, lengths);
  if (s.tree) {
    const std::vector<int32_t> words = bench::tree_words(s.seqlen_q);
    for (size_t n = 0; n < words.size(); ++n) {
      host.at("tree_mask").set(static_cast<int64_t>(n), words[n]);
    }
  }
  return host;
}

}  // namespace flashcore
