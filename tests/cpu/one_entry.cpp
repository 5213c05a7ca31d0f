#include "tests/cpu/one_entry.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace flashcore {
namespace {

using bench::HostProblem;
using bench::HostTensor;

bool is_packed(const HostProblem& host) { return host.problem.cu_seqlens_q.has_value(); }

// A box of a tensor: its first indices and extents.
struct Box {
  std::vector<int64_t> first, extent;
};

struct Rows {
  int64_t first, count;
};

Rows rows_of(const HostProblem& host, int64_t b, bool of_queries) {
  if (!is_packed(host)) {
    return {0, (of_queries ? host.problem.q : host.problem.k).shape[2]};
  }
  const HostTensor& cu = host.at(of_queries ? "cu_seqlens_q" : "cu_seqlens_kv");
  const auto first = static_cast<int64_t>(cu.get(b));
  return {first, static_cast<int64_t>(cu.get(b + 1)) - first};
}

bool has_query_rows(std::string_view name) { return name == "q" || name == "o" || name == "lse"; }
bool has_key_rows(std::string_view name) { return name == "k" || name == "v"; }

// The part of a tensor that belongs to entry b.
Box part_of(const HostProblem& host, std::string_view name, int64_t b) {
  const TensorDesc& desc = host.at(name).desc();
  Box box;
  for (size_t d = 0; d < static_cast<size_t>(desc.rank); ++d) {
    box.first.push_back(0);
    box.extent.push_back(desc.shape[d]);
  }
  const auto take = [&](size_t d, Rows rows) {
    if (box.extent[d] == 1) return;  // broadcast, or a single entry
    box.first[d] = rows.first;
    box.extent[d] = rows.count;
  };
  const bool packed = is_packed(host);
  if (packed && (has_query_rows(name) || has_key_rows(name))) {
    const Rows rows = rows_of(host, b, has_query_rows(name));
    box.first[0] = rows.first;
    box.extent[0] = rows.count;
    return box;
  }
  const bool of_heads = name == "alibi_slopes" && desc.rank == 1;
  if (name == "sinks" || name == "dropout_state" || of_heads) return box;
  take(0, {b, 1});
  if (packed && (name == "bias" || name == "mask")) {
    take(2, {0, rows_of(host, b, true).count});
    take(3, {0, rows_of(host, b, false).count});
  }
  if (packed && (name == "k_scale" || name == "v_scale")) {
    const int64_t block = host.problem.kv_scale_block;
    const int64_t keys = rows_of(host, b, false).count;
    const int64_t blocks = block == 0 ? std::min<int64_t>(keys, 1) : (keys + block - 1) / block;
    take(2, {0, blocks});
  }
  return box;
}

// The row-major index in `desc` of element `n` of the box.
int64_t element_in(const TensorDesc& desc, const Box& box, int64_t n) {
  int64_t element = 0, step = 1;
  for (size_t d = box.extent.size(); d-- > 0;) {
    element += (box.first[d] + n % box.extent[d]) * step;
    n /= box.extent[d];
    step *= desc.shape[d];
  }
  return element;
}

}  // namespace

int64_t entries_of(const HostProblem& host) {
  return is_packed(host) ? host.problem.cu_seqlens_q->shape[0] - 1 : host.problem.q.shape[0];
}

HostProblem one_entry(const HostProblem& host, int64_t b) {
  HostProblem out;
  out.problem = host.problem;
  out.problem.max_seqlen_q = out.problem.max_seqlen_kv = 0;
  out.dropout_seed = host.dropout_seed;
  out.dropout_offset = host.dropout_offset;
  for (const auto& [name, tensor] : host.tensors) {
    const bool cumulative = name.starts_with("cu_seqlens");
    const Box box = cumulative ? Box{} : part_of(host, name, b);
    const TensorDesc desc =
        bench::contiguous(tensor.desc().dtype, cumulative ? std::vector<int64_t>{2} : box.extent);
    bench::set_tensor(out.problem, name, desc);
    HostTensor& copy = out.tensors.emplace(name, HostTensor(desc)).first->second;
    if (bench::is_output(name)) continue;
    if (name == "dropout_state") {
      bench::set_dropout_state(copy, bench::dropout_draw(host));
      continue;
    }
    if (cumulative) {
      copy.set(0, 0);
      copy.set(1, static_cast<double>(rows_of(host, b, name == "cu_seqlens_q").count));
      continue;
    }
    for (int64_t n = 0; n < copy.elements(); ++n) {
      copy.set(n, tensor.get(element_in(tensor.desc(), box, n)));
    }
    // A length past the entry's rows counts as all of them, but is refused if no other entry
    // has that many.
    if (is_packed(host) && name.starts_with("seqlens_")) {
      const Rows rows = rows_of(host, b, name == "seqlens_q");
      copy.set(0, std::min(copy.get(0), static_cast<double>(rows.count)));
    }
  }
  return out;
}

bool entry_is_same(const HostProblem& whole, int64_t b, const HostProblem& alone) {
  for (const char* const name : {"o", "lse", "amax_o", "amax_s", "max_logit"}) {
    if (!whole.has(name)) continue;
    // The largest value over the batch depends on the batch.
    const bool of_batch = std::string_view(name).find("max") != std::string_view::npos &&
                          entries_of(whole) > 1 && whole.at(name).desc().shape[0] == 1;
    if (of_batch) continue;
    const HostTensor& in_batch = whole.at(name);
    const Box box = part_of(whole, name, b);
    const HostTensor& by_itself = alone.at(name);
    for (int64_t n = 0; n < by_itself.elements(); ++n) {
      // Types of at most 64 bits: equal doubles, or two NaN, mean equal bits except for NaN payloads.
      const double x = in_batch.get(element_in(in_batch.desc(), box, n));
      const double y = by_itself.get(n);
      if (x != x && y != y) continue;
      if (std::memcmp(&x, &y, sizeof(x)) != 0) return false;
    }
  }
  return true;
}

}  // namespace flashcore
