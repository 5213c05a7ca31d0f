#include "bench/sampled_gate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flashcore::bench {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr int64_t kMostBlocks = 64;

// Copies rows [first, first + count) of one head into all of `to`, a [1, 1, count, width] tensor.
void copy_rows(const HostTensor& from, int64_t batch, int64_t head, int64_t first, HostTensor& to) {
  const auto& shape = from.desc().shape;
  const bool has_width = from.desc().rank == 4;
  const int64_t width = has_width ? shape[3] : 1;
  const int64_t begin = ((batch * shape[1] + head) * shape[2] + first) * width;
  for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(begin + i));
}

HostProblem block_problem(const HostProblem& host, int64_t batch, int64_t head, int64_t first,
                          int64_t count) {
  const Problem& whole = host.problem;
  const int64_t heads_q = whole.q.shape[1], heads_kv = whole.k.shape[1];
  const int64_t seqlen_q = whole.q.shape[2], seqlen_kv = whole.k.shape[2];
  const int64_t head_kv = head / (heads_q / heads_kv);
  Problem part = whole;
  part.q = TensorDesc::contiguous(whole.q.dtype, {1, 1, count, whole.q.shape[3]});
  part.k = TensorDesc::contiguous(whole.k.dtype, {1, 1, seqlen_kv, whole.k.shape[3]});
  part.v = TensorDesc::contiguous(whole.v.dtype, {1, 1, seqlen_kv, whole.v.shape[3]});
  part.o = TensorDesc::contiguous(whole.o.dtype, {1, 1, count, whole.o.shape[3]});
  if (whole.lse) part.lse = TensorDesc::contiguous(whole.lse->dtype, {1, 1, count});
  // The diagonal of the whole problem, seen from the block's first row.
  const int64_t offset = whole.alignment == Alignment::top_left       ? 0
                         : whole.alignment == Alignment::bottom_right ? seqlen_kv - seqlen_q
                                                                      : whole.causal_offset;
  part.alignment = Alignment::given;
  part.causal_offset = offset + first;
  HostProblem block = allocate(part);
  copy_rows(host.at("q"), batch, head, first, block.at("q"));
  copy_rows(host.at("k"), batch, head_kv, 0, block.at("k"));
  copy_rows(host.at("v"), batch, head_kv, 0, block.at("v"));
  return block;
}

bool all_written(const HostTensor& o) {
  for (int64_t i = 0; i < o.elements(); ++i) {
    if (std::isnan(o.get(i))) return false;
  }
  return true;
}

}  // namespace

Result<SampledReference> SampledReference::compute(const HostProblem& host, double flop,
                                                   int threads) {
  const Problem& p = host.problem;
  const int64_t batch = p.q.shape[0], heads = p.q.shape[1], seqlen_q = p.q.shape[2];
  const int64_t count = std::min(seqlen_q, kBlockRows);
  const double block_flop =
      2.0 * static_cast<double>(count * p.k.shape[2] * (p.q.shape[3] + p.v.shape[3]));
  const int64_t possible = batch * heads * ((seqlen_q + count - 1) / count);
  const auto affordable = static_cast<int64_t>(std::max(1.0, flop / block_flop));
  const int64_t blocks = std::min({possible, affordable, kMostBlocks});
  SampledReference sampled;
  for (int64_t n = 0; n < blocks; ++n) {
    // Heads are spread evenly, ends included; positions too, in an order of their own (the step is
    // a prime past kMostBlocks, so each is taken once) that begins at the first and ends at the
    // last.
    const int64_t pair = blocks > 1 ? n * (batch * heads - 1) / (blocks - 1) : 0;
    const int64_t turn = n + 1 < blocks ? n * 67 % blocks : n;
    const int64_t first = blocks > 1 ? turn * (seqlen_q - count) / (blocks - 1) : seqlen_q - count;
    Block block{.batch = pair / heads,
                .head = pair % heads,
                .first = first,
                .count = count,
                .outputs = block_problem(host, pair / heads, pair % heads, first, count),
                .reference = {}};
    Result<Reference> reference = compute_reference(block.outputs, threads);
    if (!reference.ok()) return reference.status();
    block.reference = std::move(*reference);
    for (const char* const input : {"q", "k", "v"}) block.outputs.tensors.erase(input);
    sampled.blocks_.push_back(std::move(block));
  }
  return sampled;
}

int64_t SampledReference::rows() const {
  int64_t rows = 0;
  for (const Block& block : blocks_) rows += block.count;
  return rows;
}

Verdict SampledReference::judge(const HostProblem& host) const {
  Verdict worst;
  worst.passed = true;
  for (const Block& block : blocks_) {
    HostProblem part = block.outputs;
    copy_rows(host.at("o"), block.batch, block.head, block.first, part.at("o"));
    if (host.has("lse")) {
      copy_rows(host.at("lse"), block.batch, block.head, block.first, part.at("lse"));
    }
    const Verdict verdict = bench::judge(part, block.reference);
    worst.max_error = std::max(worst.max_error, verdict.max_error);
    worst.max_scaled_error = std::max(worst.max_scaled_error, verdict.max_scaled_error);
    worst.relative_error = std::max(worst.relative_error, verdict.relative_error);
    worst.lse_error = std::max(worst.lse_error, verdict.lse_error);
    worst.naive_max_error = std::max(worst.naive_max_error, verdict.naive_max_error);
    worst.outlier_fraction = std::max(worst.outlier_fraction, verdict.outlier_fraction);
    if (!verdict.passed && worst.passed) {
      worst.passed = false;
      worst.failure = verdict.failure;
    }
  }
  if (worst.passed && !all_written(host.at("o"))) {
    worst.passed = false;
    worst.failure = "o has elements that are NaN or were not written";
  }
  for (const auto& [name, tensor] : host.tensors) {
    if (worst.passed && is_output(name) && !tensor.canaries_intact()) {
      worst.passed = false;
      worst.failure = name + ": bytes outside of its elements were written";
    }
  }
  return worst;
}

}  // namespace flashcore::bench
