#include "bench/gate/sampled_gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kBlockRows = 16;
constexpr int64_t kMostBlocks = 64;

Part part_of(const Problem& problem, const RowBlock& rows) {
  const int64_t group = problem.q.shape[1] / problem.k.shape[1];
  return {.entry = rows.batch,
          .heads_q = {rows.head, 1},
          .heads_kv = {rows.head / group, 1},
          .queries = {rows.first, rows.count},
          .keys = {0, problem.k.shape[2]}};
}

// Converts a tree mask's bits to a mask of the block's pairs: a block has another diagonal.
HostTensor tree_pairs(const Problem& whole, const ReadElements& inputs, const Part& part,
                      int64_t offset) {
  const Piece piece(whole, "tree_mask", *whole.tree_mask, part);
  HostTensor bits(piece.desc());
  piece.read(inputs, bits);
  const int64_t words = bits.desc().shape[2], queries = part.queries.count;
  const int64_t keys = part.keys.count;
  HostTensor mask(TensorDesc::contiguous(DType::boolean, {1, 1, queries, keys}));
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t t = j - offset;
      const auto word = [&] {
        return static_cast<uint32_t>(static_cast<int64_t>(bits.get(i * words + t / 32)));
      };
      const bool sees = t < 0 || (t < 32 * words && (word() >> (t % 32)) % 2 == 1);
      mask.set(i * keys + j, sees ? 1 : 0);
    }
  }
  return mask;
}

// Turns one block into a problem of one head, with its inputs.
HostProblem block_problem(const Problem& whole, const ReadElements& inputs, const Part& part) {
  HostProblem block = read_part(whole, part, inputs);
  const int64_t keys =
      whole.seqlens_kv ? static_cast<int64_t>(block.at("seqlens_kv").get(0)) : part.keys.count;
  // The diagonal of the whole problem, relative to the block's first row.
  const int64_t offset = whole.alignment == Alignment::top_left       ? 0
                         : whole.alignment == Alignment::bottom_right ? keys - whole.q.shape[2]
                                                                      : whole.causal_offset;
  block.problem.alignment = Alignment::given;
  block.problem.causal_offset = offset + part.queries.first;
  if (whole.tree_mask) {
    HostTensor mask = tree_pairs(whole, inputs, part, offset);
    block.problem.mask = mask.desc();
    block.tensors.emplace("mask", std::move(mask));
  }
  return block;
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

Result<SampledReference> SampledReference::compute(const Problem& problem,
                                                   const ReadElements& inputs, double flop,
                                                   int threads) {
  return compute(problem, inputs, choose_blocks(problem, flop), threads);
}

Result<SampledReference> SampledReference::compute(const HostProblem& host, double flop,
                                                   int threads) {
  return compute(host.problem, reader_of(host), flop, threads);
}

Result<SampledReference> SampledReference::compute(const Problem& problem,
                                                   const ReadElements& inputs,
                                                   const std::vector<RowBlock>& blocks,
                                                   int threads) {
  SampledReference sampled;
  sampled.problem_ = problem;
  sampled.blocks_.resize(blocks.size());
  // A block has one head, which the reference computes on one thread; so blocks run in parallel.
  std::vector<Status> errors(blocks.size());
  cpu::parallel_for(std::ssize(blocks), threads, [&](int64_t task) {
    const auto n = static_cast<size_t>(task);
    Block& block = sampled.blocks_[n];
    block.rows = blocks[n];
    block.part = part_of(problem, blocks[n]);
    block.outputs = block_problem(problem, inputs, block.part);
    Result<Reference> reference = compute_reference(block.outputs, 1);
    errors[n] = reference.status();
    if (reference.ok()) block.reference = std::move(*reference);
    block.reference.limits = gate_limits_of_few_rows(block.outputs.problem);
    for (const char* const input : {"q", "k", "v"}) block.outputs.tensors.erase(input);
  });
  for (const Status& error : errors) {
    if (!error.ok()) return error;
  }
  return sampled;
}

std::vector<RowBlock> SampledReference::blocks() const {
  std::vector<RowBlock> blocks;
  for (const Block& block : blocks_) blocks.push_back(block.rows);
  return blocks;
}

nlohmann::ordered_json blocks_json(const std::vector<RowBlock>& blocks) {
  auto list = nlohmann::ordered_json::array();
  for (const RowBlock& rows : blocks) {
    list.push_back({rows.batch, rows.head, rows.first, rows.count});
  }
  return list;
}

std::string SampledReference::judged() const {
  const int64_t all = problem_.q.shape[0] * problem_.q.shape[1] * problem_.q.shape[2];
  return rows() >= all ? "all rows" : fmt::format("{} of {} rows", rows(), all);
}

nlohmann::ordered_json SampledReference::request() const {
  return {{"blocks", blocks_json(blocks())}};
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
    Piece(problem_, "o", problem_.o, block.part).read(outputs, part.at("o"));
    if (has_lse && part.has("lse")) {
      Piece(problem_, "lse", *problem_.lse, block.part).read(outputs, part.at("lse"));
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
    if (verdict.passed) continue;
    const auto& [batch, head, first, count] = block.rows;
    worst.note(fmt::format("in rows {} to {} of sequence {}, head {}: {}", first, first + count - 1,
                           batch, head, verdict.failure));
  }
  return worst;
}

Result<Verdict> SampledReference::judge_rows(std::span<const std::byte> rows) const {
  const size_t row_bytes = static_cast<size_t>(problem_.o.shape[3]) * size_of(problem_.o.dtype);
  const size_t wanted = static_cast<size_t>(this->rows()) * row_bytes;
  if (rows.size() != wanted)
    return unsupported("has {} bytes of rows, wanted {}", rows.size(), wanted);
  return judge(reader_of(rows), false);
}

Verdict SampledReference::judge(const HostProblem& host) const {
  Verdict worst = judge(reader_of(host), host.has("lse"));
  worst.note(unwritten("o", host.at("o")));
  worst.note(overrun(host.tensors));
  return worst;
}

}  // namespace flashcore::bench
