#include "bench/gate/sampled_gradients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bench/gate/gradient_rows.hpp"
#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr int64_t kRows = GradientRows::kLanes;
constexpr int64_t kMostHeads = 8;

// In operations; a core does about 3e9 per second. Past the first limit there are fewer blocks,
// but two per head; past the second, two heads; past the third, LSE and O of all queries of
// 16-bit inputs are computed in fp32, in a tenth of the time; past the last, the gate of fp32
// inputs is refused.
constexpr double kBlocks = 2e10;
constexpr double kStatistics = 1e10;
constexpr double kFp64Statistics = 2e10;
constexpr double kMostStatistics = 4e11;
// The cost of a pair's weights, exponentials and roundings, in addition to its products.
constexpr int64_t kPairOfGradients = 400;

// The lengths of a batch entry, and the start of its rows in a packed tensor.
struct Entry {
  int64_t begin_q = 0, begin_kv = 0, len_q = 0, len_kv = 0;
};

bool is_packed(const Problem& problem) { return problem.cu_seqlens_q.has_value(); }

Entry entry_of(const Problem& problem, const BackwardInputs& inputs, int64_t b) {
  if (!is_packed(problem)) return {0, 0, problem.q.shape[2], problem.k.shape[2]};
  const auto begin = [&](const char* name, int64_t entry) {
    HostTensor one(TensorDesc::contiguous(DType::i32, {1}));
    inputs.read(name, entry, one);
    return static_cast<int64_t>(one.get(0));
  };
  const int64_t q = begin("cu_seqlens_q", b), kv = begin("cu_seqlens_kv", b);
  return {q, kv, begin("cu_seqlens_q", b + 1) - q, begin("cu_seqlens_kv", b + 1) - kv};
}

int64_t entries_of(const Problem& problem) {
  return is_packed(problem) ? problem.cu_seqlens_q->shape[0] - 1 : problem.q.shape[0];
}

// The cost of LSE and O of all queries of a KV head.
double statistics_of(const Problem& problem, const Entry& entry) {
  const int64_t group = problem.q.shape[1] / problem.k.shape[1];
  const int64_t width = problem.q.shape[static_cast<size_t>(problem.q.rank - 1)] +
                        problem.v.shape[static_cast<size_t>(problem.v.rank - 1)];
  return 2.0 * static_cast<double>(group * entry.len_q) * static_cast<double>(entry.len_kv * width);
}

// `count` rows of a head, or the requested number of blocks, spread evenly including both ends.
// Query heads alternate.
std::vector<RowBlock> spread(int64_t batch, int64_t first_head, int64_t heads, int64_t rows,
                             double wanted) {
  std::vector<RowBlock> blocks;
  if (rows == 0) return blocks;
  const int64_t of_head = (rows + kRows - 1) / kRows;
  if (wanted >= static_cast<double>(heads * of_head)) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t first = 0; first < rows; first += kRows) {
        blocks.push_back({batch, first_head + h, first, std::min(kRows, rows - first)});
      }
    }
    return blocks;
  }
  const auto last = static_cast<int64_t>(std::max(2.0, wanted)) - 1;
  const int64_t size = std::min(rows, kRows);
  for (int64_t n = 0; n <= last; ++n) {
    const int64_t head = n < last ? n % heads : heads - 1;
    const int64_t first = last > 0 ? n * (rows - size) / last : 0;
    blocks.push_back({batch, first_head + head, first, size});
  }
  return blocks;
}

}  // namespace

// Computes the reference, head by head.
class SampledGradients::Sampler {
 public:
  Sampler(SampledGradients& out, const BackwardInputs& inputs, int threads)
      : out_(out),
        problem_(out.problem_),
        inputs_(inputs),
        threads_(threads),
        group_(out.problem_.q.shape[1] / out.problem_.k.shape[1]) {}

  Status run() {
    const int64_t heads_kv = problem_.k.shape[1], all = entries_of(problem_) * heads_kv;
    double most = 1;
    for (int64_t b = 0; b < entries_of(problem_); ++b) {
      most = std::max(most, statistics_of(problem_, entry_of(problem_, inputs_, b)));
    }
    heads_ = std::min(all, static_cast<int64_t>(std::clamp(kStatistics / most, 2.0,
                                                           static_cast<double>(kMostHeads))));
    if (problem_.dropout_p > 0) heads_ = std::min<int64_t>(heads_, 1);
    const bool in_fp64 =
        problem_.q.dtype == DType::f32 || most * static_cast<double>(heads_) <= kFp64Statistics;
    statistics_ = in_fp64 ? GradientRows::Statistics::fp64 : GradientRows::Statistics::fp32;
    for (int64_t n = 0; n < heads_; ++n) {
      const int64_t pair = heads_ > 1 ? n * (all - 1) / (heads_ - 1) : 0;
      FLASHCORE_RETURN_IF_ERROR(add_head(pair / heads_kv, pair % heads_kv));
    }
    std::stable_sort(out_.blocks_.begin(), out_.blocks_.end(),
                     [](const Block& a, const Block& b) { return order_of(a) < order_of(b); });
    return {};
  }

 private:
  static int order_of(const Block& block) {
    return block.name == "dq" ? 0 : block.name == "dk" ? 1 : 2;
  }

  int64_t width_of(const TensorDesc& desc) const {
    return desc.shape[static_cast<size_t>(desc.rank - 1)];
  }

  // The number of blocks that there is time for; a block computes 16 rows of `others` pairs.
  double affordable(int64_t others) const {
    const int64_t pair = 6 * (width_of(problem_.q) + width_of(problem_.v)) + kPairOfGradients;
    const auto work = static_cast<double>(kRows * std::max<int64_t>(others, 1) * pair);
    return kBlocks / (2.0 * static_cast<double>(heads_) * work);
  }

  Status add_head(int64_t batch, int64_t head) {
    const Entry entry = entry_of(problem_, inputs_, batch);
    if (entry.len_q == 0 || entry.len_kv == 0) return {};
    const Part part{.entry = batch,
                    .heads_q = {head * group_, group_},
                    .heads_kv = {head, 1},
                    .queries = {0, entry.len_q},
                    .keys = {0, entry.len_kv},
                    .begin_q = entry.begin_q,
                    .begin_kv = entry.begin_kv};
    HostProblem forward = read_part(problem_, part, inputs_.read);
    forward.dropout_seed = inputs_.dropout_seed;
    forward.dropout_offset = inputs_.dropout_offset;
    HostTensor d_o(forward.problem.o);
    Piece(problem_, "d_o", out_.gradients_.d_o, part).read(inputs_.read, d_o);
    std::optional<HostTensor> d_lse;
    if (out_.gradients_.d_lse) {
      const Piece piece(problem_, "d_lse", *out_.gradients_.d_lse, part);
      piece.read(inputs_.read, d_lse.emplace(piece.desc()));
    }
    const Result<GradientRows> rows = GradientRows::make(
        std::move(forward), d_o, d_lse ? &*d_lse : nullptr, statistics_, threads_);
    if (!rows.ok()) return rows.status();
    out_.forward_.push_back({part, rows->o(), rows->lse()});
    return add_blocks(*rows, part);
  }

  // Blocks run in parallel.
  Status add_blocks(const GradientRows& rows, const Part& part) {
    const int64_t first_head = part.heads_q.first, len_q = part.queries.count;
    const std::vector<RowBlock> of_q =
        spread(part.entry, first_head, group_, len_q, affordable(part.keys.count));
    const std::vector<RowBlock> of_kv =
        spread(part.entry, part.heads_kv.first, 1, part.keys.count, affordable(len_q * group_));
    const size_t count = of_q.size() + of_kv.size();
    std::vector<std::vector<Block>> found(count);
    std::vector<Status> errors(count);
    cpu::parallel_for(static_cast<int64_t>(count), threads_, [&](int64_t task) {
      const auto n = static_cast<size_t>(task);
      if (n < of_q.size()) {
        const RowBlock& one = of_q[n];
        Part block = part;
        block.heads_q = {one.head, 1};
        block.queries = {one.first, one.count};
        Result<GradientReference> dq = rows.dq(one.head - first_head, one.first, one.count);
        errors[n] = dq.status();
        if (dq.ok()) found[n].push_back({"dq", one, block, std::move(*dq)});
        return;
      }
      const RowBlock& one = of_kv[n - of_q.size()];
      auto [dk, dv] = rows.dk_dv(one.first, one.count);
      Part block = part;
      block.keys = {one.first, one.count};
      found[n].push_back({"dk", one, block, std::move(dk)});
      found[n].push_back({"dv", one, block, std::move(dv)});
    });
    for (size_t n = 0; n < count; ++n) {
      FLASHCORE_RETURN_IF_ERROR(errors[n]);
      for (Block& block : found[n]) out_.blocks_.push_back(std::move(block));
    }
    return {};
  }

  SampledGradients& out_;
  const Problem& problem_;
  const BackwardInputs& inputs_;
  int threads_;
  int64_t group_, heads_ = 0;
  GradientRows::Statistics statistics_ = GradientRows::Statistics::fp64;
};

std::string SampledGradients::refusal(const Problem& problem, const Gradients& gradients) {
  for (const auto& [name, asked] : {std::pair{"d_bias", gradients.d_bias.has_value()},
                                    {"d_sinks", gradients.d_sinks.has_value()},
                                    {"d_alibi_slopes", gradients.d_alibi_slopes.has_value()}}) {
    if (asked) {
      return fmt::format(
          "gate: {} is a sum over more rows than are judged, wanted a smaller "
          "problem, or --gradients without it",
          name);
    }
  }
  if (is_packed(problem) && (problem.bias || problem.mask)) {
    return "gate: rows of a packed batch with a bias or a mask are not judged, wanted a smaller "
           "problem";
  }
  if (problem.dropout_state) {
    return "gate: rows with dropout_state are not judged, wanted a smaller problem";
  }
  const Entry longest = is_packed(problem)
                            ? Entry{0, 0, problem.max_seqlen_q, problem.max_seqlen_kv}
                            : Entry{0, 0, problem.q.shape[2], problem.k.shape[2]};
  const double work = 2 * statistics_of(problem, longest);
  if (problem.q.dtype == DType::f32 && work > kMostStatistics) {
    return fmt::format("gate: takes {:.2g} operations in fp64, wanted at most {:.2g} for f32", work,
                       kMostStatistics);
  }
  return {};
}

Result<SampledGradients> SampledGradients::compute(const Problem& problem,
                                                   const Gradients& gradients,
                                                   const BackwardInputs& inputs, int threads) {
  SampledGradients sampled;
  sampled.problem_ = problem;
  sampled.gradients_ = gradients;
  if (Status status = Sampler(sampled, inputs, threads).run(); !status.ok()) return status;
  return sampled;
}

void SampledGradients::write_forward(const WriteElements& write) const {
  for (const Forward& one : forward_) {
    Piece(problem_, "o", problem_.o, one.part).write(write, one.o);
    Piece(problem_, "lse", *problem_.lse, one.part).write(write, one.lse);
  }
}

const TensorDesc& SampledGradients::desc_of(std::string_view gradient) const {
  return gradient == "dq" ? gradients_.dq : gradient == "dk" ? gradients_.dk : gradients_.dv;
}

std::vector<RowBlock> SampledGradients::blocks_of(std::string_view gradient) const {
  std::vector<RowBlock> blocks;
  for (const Block& block : blocks_) {
    if (block.name == gradient) blocks.push_back(block.rows);
  }
  return blocks;
}

nlohmann::ordered_json SampledGradients::request() const {
  return {{"pass", "backward"},
          {"blocks_q", blocks_json(blocks_q())},
          {"blocks_kv", blocks_json(blocks_kv())}};
}

std::string SampledGradients::judged() const {
  const auto rows_of = [](const std::vector<RowBlock>& blocks) {
    int64_t rows = 0;
    for (const RowBlock& block : blocks) rows += block.count;
    return rows;
  };
  const auto all_of = [&](const TensorDesc& desc) {
    return desc.shape[0] * desc.shape[1] * (is_packed(problem_) ? 1 : desc.shape[2]);
  };
  const int64_t q = rows_of(blocks_q()), kv = rows_of(blocks_kv());
  const int64_t all_q = all_of(problem_.q), all_kv = all_of(problem_.k);
  if (q == all_q && kv == all_kv) return "all rows";
  return fmt::format("{} of {} rows of dQ, {} of {} of dK and dV", q, all_q, kv, all_kv);
}

// The reference of all blocks of a gradient.
GradientReference SampledGradients::together(std::string_view gradient) const {
  GradientReference out;
  double square = 0, terms = 0;
  for (const Block& block : blocks_) {
    if (block.name != gradient) continue;
    const GradientReference& one = block.reference;
    out.values.insert(out.values.end(), one.values.begin(), one.values.end());
    for (const double value : one.values) square += value * value;
    terms += one.norm_of_terms * one.norm_of_terms;
    out.naive_max_error = std::max(out.naive_max_error, one.naive_max_error);
  }
  out.norm_of_terms = std::sqrt(terms);
  out.norm = std::max(std::sqrt(square), out.norm_of_terms);
  return out;
}

Verdict SampledGradients::judge(const ReadElements& gradients) const {
  Verdict verdict;
  for (const char* const name : {"dq", "dk", "dv"}) {
    const TensorDesc& desc = desc_of(name);
    const int64_t width = desc.shape[static_cast<size_t>(desc.rank - 1)];
    const GradientLimits limits = gradient_limits(problem_, desc.dtype);
    const GradientReference all = together(name);
    HostTensor sample(TensorDesc::contiguous(
        desc.dtype, {static_cast<int64_t>(all.values.size()) / width, width}));
    auto next = sample.bytes().begin();
    for (const Block& block : blocks_) {
      if (block.name != name) continue;
      HostTensor got(TensorDesc::contiguous(desc.dtype, {block.rows.count, width}));
      Piece(problem_, name, desc, block.part).read(gradients, got);
      next = std::copy(got.bytes().begin(), got.bytes().end(), next);
      Verdict of_block;
      const std::string failure =
          judge_gradient(name, got, block.reference,
                         {.relative_error = limits.relative_error,
                          .naive_allowance = std::numeric_limits<double>::max()},
                         of_block);
      verdict.relative_error = std::max(verdict.relative_error, of_block.relative_error);
      if (failure.empty()) continue;
      verdict.note(fmt::format("entry {}, head {}, rows from {}: {}", block.rows.batch,
                               block.rows.head, block.rows.first, failure));
    }
    const std::string failure = judge_gradient(name, sample, all, limits, verdict);
    if (!failure.empty()) verdict.note("rows judged: " + failure);
  }
  verdict.note("");
  return verdict;
}

Result<Verdict> SampledGradients::judge_rows(std::span<const std::byte> rows) const {
  size_t wanted = 0;
  for (const Block& block : blocks_) {
    wanted += block.reference.values.size() * size_of(desc_of(block.name).dtype);
  }
  if (rows.size() != wanted) {
    return unsupported("has {} bytes of rows, wanted {}", rows.size(), wanted);
  }
  return judge(reader_of(rows));
}

}  // namespace flashcore::bench
