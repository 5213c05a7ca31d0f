#include "bench/gate/sampled_gate.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr int64_t kMostBlocks = 64;

// The first element of a block's rows in a tensor of pairs, [B|1, H|1, Sq|1, Skv]; an extent of
// 1 is broadcast.
int64_t first_pair(const TensorDesc& pairs, const RowBlock& rows) {
  const auto at = [&](size_t d, int64_t index) { return pairs.shape[d] == 1 ? int64_t{0} : index; };
  const int64_t head = at(0, rows.batch) * pairs.shape[1] + at(1, rows.head);
  return (head * pairs.shape[2] + at(2, rows.first)) * pairs.shape[3];
}

std::optional<TensorDesc> of_one_head(const std::optional<TensorDesc>& scales) {
  if (!scales) return std::nullopt;
  return scales->rank == 2 ? TensorDesc::contiguous(scales->dtype, {1, 1})
                           : TensorDesc::contiguous(scales->dtype, {1, 1, scales->shape[2]});
}

// Converts a tree mask's bits to a mask of the block's pairs: a block has another diagonal.
void fill_tree_pairs(const Problem& whole, const ReadElements& inputs, const RowBlock& rows,
                     int64_t offset, HostTensor& mask) {
  const TensorDesc& bits = *whole.tree_mask;
  const int64_t words = bits.shape[2], keys = mask.desc().shape[3];
  const int64_t first = (bits.shape[0] == 1 ? 0 : rows.batch) * bits.shape[1] + rows.first;
  HostTensor row(TensorDesc::contiguous(DType::i32, {words}));
  for (int64_t i = 0; i < rows.count; ++i) {
    inputs("tree_mask", (first + i) * words, row);
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t t = j - offset;
      const bool sees =
          t < 0 ||
          (t < 32 * words &&
           (static_cast<uint32_t>(static_cast<int64_t>(row.get(t / 32))) >> (t % 32)) % 2 == 1);
      mask.set(i * keys + j, sees ? 1 : 0);
    }
  }
}

// Turns one block into a problem of one head, with its inputs.
HostProblem block_problem(const Problem& whole, const ReadElements& inputs, const RowBlock& rows) {
  const int64_t heads_q = whole.q.shape[1], heads_kv = whole.k.shape[1];
  const int64_t seqlen_q = whole.q.shape[2], seqlen_kv = whole.k.shape[2];
  const int64_t head_kv = rows.head / (heads_q / heads_kv);
  Problem part = whole;
  part.q = TensorDesc::contiguous(whole.q.dtype, {1, 1, rows.count, whole.q.shape[3]});
  part.k = TensorDesc::contiguous(whole.k.dtype, {1, 1, seqlen_kv, whole.k.shape[3]});
  part.v = TensorDesc::contiguous(whole.v.dtype, {1, 1, whole.v.shape[2], whole.v.shape[3]});
  if (v_is_in_k(whole)) part.v = first_columns(part.k, whole.v.shape[3]);
  part.o = TensorDesc::contiguous(whole.o.dtype, {1, 1, rows.count, whole.o.shape[3]});
  if (whole.lse) part.lse = TensorDesc::contiguous(whole.lse->dtype, {1, 1, rows.count});
  if (whole.seqlens_kv) part.seqlens_kv = TensorDesc::contiguous(DType::i32, {1});
  for (std::optional<TensorDesc>* const pairs : {&part.bias, &part.mask}) {
    if (!*pairs) continue;
    const TensorDesc& all = **pairs;
    *pairs =
        TensorDesc::contiguous(all.dtype, {1, 1, std::min(rows.count, all.shape[2]), all.shape[3]});
  }
  if (part.alibi_slopes) part.alibi_slopes = TensorDesc::contiguous(DType::f32, {1});
  if (whole.tree_mask) {
    part.tree_mask.reset();
    part.mask = TensorDesc::contiguous(DType::boolean, {1, 1, rows.count, seqlen_kv});
  }
  for (std::optional<TensorDesc>* const scales :
       {&part.q_scale, &part.k_scale, &part.v_scale, &part.o_scale}) {
    *scales = of_one_head(*scales);
  }
  part.amax_o.reset();  // covers whole heads: a few rows cannot give it
  part.amax_s.reset();
  HostProblem block = allocate(part);
  int64_t in_use = seqlen_kv;
  if (whole.seqlens_kv) {
    inputs("seqlens_kv", rows.batch, block.at("seqlens_kv"));
    in_use = static_cast<int64_t>(block.at("seqlens_kv").get(0));
  }
  // The diagonal of the whole problem, relative to the block's first row.
  const int64_t offset = whole.alignment == Alignment::top_left       ? 0
                         : whole.alignment == Alignment::bottom_right ? in_use - seqlen_q
                                                                      : whole.causal_offset;
  block.problem.alignment = Alignment::given;
  block.problem.causal_offset = offset + rows.first;
  const int64_t query = (rows.batch * heads_q + rows.head) * seqlen_q + rows.first;
  const int64_t kv_head = rows.batch * heads_kv + head_kv;
  inputs("q", query * whole.q.shape[3], block.at("q"));
  inputs("k", kv_head * seqlen_kv * whole.k.shape[3], block.at("k"));
  if (!v_is_in_k(whole)) {
    inputs("v", kv_head * whole.v.shape[2] * whole.v.shape[3], block.at("v"));
  }
  if (whole.bias) inputs("bias", first_pair(*whole.bias, rows), block.at("bias"));
  if (whole.tree_mask) fill_tree_pairs(whole, inputs, rows, offset, block.at("mask"));
  if (whole.mask) inputs("mask", first_pair(*whole.mask, rows), block.at("mask"));
  if (whole.alibi_slopes) inputs("alibi_slopes", rows.head, block.at("alibi_slopes"));
  for (const auto& [name, scales, head] : {std::tuple{"q_scale", whole.q_scale, rows.head},
                                           {"k_scale", whole.k_scale, head_kv},
                                           {"v_scale", whole.v_scale, head_kv},
                                           {"o_scale", whole.o_scale, rows.head}}) {
    if (!scales) continue;
    HostTensor& to = block.at(name);
    inputs(name, element_of_head(*scales, rows.batch, head) * to.elements(), to);
  }
  return block;
}

bool all_written(const HostTensor& o) {
  if (o.is_dense()) {
    const auto* const first = static_cast<const std::byte*>(o.data());
    return !has_nan(o.desc().dtype, {first, static_cast<size_t>(element_bytes(o.desc()))});
  }
  for (int64_t i = 0; i < o.elements(); ++i) {
    if (std::isnan(o.get(i))) return false;
  }
  return true;
}

// Heads are spread evenly, including both ends. So are positions, in an order of their own (the step
// is a prime above kMostBlocks, so each is taken once) that starts at the first and ends at the last.
std::vector<RowBlock> choose_blocks(const Problem& p, double flop) {
  const int64_t batch = p.q.shape[0], heads = p.q.shape[1], seqlen_q = p.q.shape[2];
  if (p.dropout_p > 0) return {{0, 0, 0, std::min(seqlen_q, 4 * kBlockRows)}};
  const int64_t count = std::min(seqlen_q, kBlockRows);
  const double block_flop =
      2.0 * static_cast<double>(count * p.k.shape[2] * (p.q.shape[3] + p.o.shape[3]));
  const int64_t possible = batch * heads * ((seqlen_q + count - 1) / count);
  const auto affordable = static_cast<int64_t>(std::clamp(flop / block_flop, 2.0, 1e9));
  const int64_t blocks = std::min({possible, affordable, kMostBlocks});
  std::vector<RowBlock> chosen;
  for (int64_t n = 0; n < blocks; ++n) {
    const int64_t pair = blocks > 1 ? n * (batch * heads - 1) / (blocks - 1) : 0;
    const int64_t turn = n + 1 < blocks ? n * 67 % blocks : n;
    const int64_t first = blocks > 1 ? turn * (seqlen_q - count) / (blocks - 1) : seqlen_q - count;
    chosen.push_back({pair / heads, pair % heads, first, count});
  }
  return chosen;
}

}  // namespace

int64_t element_of_head(const TensorDesc& all, int64_t batch, int64_t head) {
  return (all.shape[0] == 1 ? 0 : batch) * all.shape[1] + (all.shape[1] == 1 ? 0 : head);
}

ReadElements reader_of(const HostProblem& host) {
  return [&host](std::string_view name, int64_t begin, HostTensor& to) {
    const HostTensor& from = host.at(name);
    for (int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(begin + i));
  };
}

Result<SampledReference> SampledReference::compute(const Problem& problem,
                                                   const ReadElements& inputs, double flop,
                                                   int threads) {
  SampledReference sampled;
  sampled.heads_ = problem.q.shape[1];
  sampled.seqlen_q_ = problem.q.shape[2];
  const std::vector<RowBlock> chosen = choose_blocks(problem, flop);
  sampled.blocks_.resize(chosen.size());
  // A block has one head, which the reference computes on one thread; so blocks run in parallel.
  std::vector<Status> errors(chosen.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t n = next++; n < chosen.size(); n = next++) {
      Block& block = sampled.blocks_[n];
      block.rows = chosen[n];
      block.outputs = block_problem(problem, inputs, chosen[n]);
      Result<Reference> reference = compute_reference(block.outputs, 1);
      errors[n] = reference.status();
      if (reference.ok()) block.reference = std::move(*reference);
      block.reference.limits = gate_limits_of_few_rows(block.outputs.problem);
      for (const char* const input : {"q", "k", "v"}) block.outputs.tensors.erase(input);
    }
  };
  const int all = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < (threads > 0 ? threads : all); ++t) others.emplace_back(work);
    work();
  }
  for (const Status& error : errors) {
    if (!error.ok()) return error;
  }
  return sampled;
}

Result<SampledReference> SampledReference::compute(const HostProblem& host, double flop,
                                                   int threads) {
  return compute(host.problem, reader_of(host), flop, threads);
}

std::vector<RowBlock> SampledReference::blocks() const {
  std::vector<RowBlock> blocks;
  for (const Block& block : blocks_) blocks.push_back(block.rows);
  return blocks;
}

int64_t SampledReference::rows() const {
  int64_t rows = 0;
  for (const Block& block : blocks_) rows += block.rows.count;
  return rows;
}

Verdict SampledReference::judge(const ReadElements& outputs, bool has_lse) const {
  Verdict worst;
  worst.passed = true;
  for (const Block& block : blocks_) {
    HostProblem part = block.outputs;
    Reference reference = block.reference;
    const RowBlock& rows = block.rows;
    const int64_t row = (rows.batch * heads_ + rows.head) * seqlen_q_ + rows.first;
    outputs("o", row * part.problem.o.shape[3], part.at("o"));
    if (has_lse && part.has("lse")) {
      outputs("lse", row, part.at("lse"));
    } else {
      part.tensors.erase("lse");
      reference.lse.clear();
    }
    const Verdict verdict = bench::judge(part, reference);
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
  return worst;
}

Result<Verdict> SampledReference::judge_rows(std::span<const std::byte> rows) const {
  const TensorDesc& o = blocks_.front().outputs.problem.o;
  const size_t row_bytes = static_cast<size_t>(o.shape[3]) * size_of(o.dtype);
  const size_t wanted = static_cast<size_t>(this->rows()) * row_bytes;
  if (rows.size() != wanted)
    return unsupported("has {} bytes of rows, wanted {}", rows.size(), wanted);
  size_t at = 0;
  return judge(
      [&](std::string_view, int64_t, HostTensor& to) {
        const size_t bytes = static_cast<size_t>(to.elements()) * size_of(o.dtype);
        std::memcpy(to.data(), rows.data() + at, bytes);
        at += bytes;
      },
      false);
}

Verdict SampledReference::judge(const HostProblem& host) const {
  Verdict worst = judge(reader_of(host), host.has("lse"));
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
