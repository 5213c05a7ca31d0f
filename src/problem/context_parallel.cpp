// The plan of context parallelism: who holds which rows, the route of K and V, and the predicted times.
#include "flashcore/context_parallel.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "problem/context_blocks.hpp"
#include "problem/status.hpp"
#include "problem/visibility.hpp"

namespace flashcore {
namespace {

using context::Block;
using context::Piece;

constexpr double kImpossible = std::numeric_limits<double>::infinity();

struct Document {
  std::vector<Piece> q;
  std::vector<Piece> kv;
};

// The shards of all ranks.
struct Shards {
  std::vector<std::vector<Document>> documents;  // by rank
  std::vector<int64_t> rows_q;
  std::vector<int64_t> rows_kv;
  std::vector<ContextPiece> pieces_q;
  std::vector<ContextPiece> pieces_kv;
};

std::vector<Piece> take(const ContextProblem& problem, int64_t rank, int64_t length, int64_t begin,
                        int64_t& place, std::vector<ContextPiece>& all) {
  std::vector<Piece> pieces =
      context::pieces_of(problem.layout, problem.world, rank, length, place);
  for (const Piece& piece : pieces) {
    all.push_back({rank, begin + piece.begin, piece.place, piece.rows});
    place += piece.rows;
  }
  return pieces;
}

Shards shards_of(const ContextProblem& problem) {
  Shards shards;
  for (int64_t rank = 0; rank < problem.world; ++rank) {
    std::vector<Document>& documents = shards.documents.emplace_back();
    int64_t& rows_q = shards.rows_q.emplace_back(0);
    int64_t& rows_kv = shards.rows_kv.emplace_back(0);
    int64_t begin_q = 0;
    int64_t begin_kv = 0;
    for (size_t i = 0; i < problem.seqlens_q.size(); ++i) {
      Document& one = documents.emplace_back();
      one.q = take(problem, rank, problem.seqlens_q[i], begin_q, rows_q, shards.pieces_q);
      one.kv = take(problem, rank, problem.seqlens_kv[i], begin_kv, rows_kv, shards.pieces_kv);
      begin_q += problem.seqlens_q[i];
      begin_kv += problem.seqlens_kv[i];
    }
  }
  return shards;
}

class Planner {
 public:
  explicit Planner(const ContextProblem& problem)
      : problem_(problem), world_(problem.world), shards_(shards_of(problem)) {
    band_ = {problem.window_left, problem.window_right};
    if (problem.causal) band_.right = 0;
    find_route();
  }

  ContextPlan plan(ContextAlgorithm algorithm) {
    ContextPlan plan;
    plan.seconds = {ring_seconds(), all_gather_seconds(), ulysses_seconds()};
    if (algorithm == ContextAlgorithm::automatic) {
      const auto* const best = std::min_element(plan.seconds.begin(), plan.seconds.end());
      algorithm = static_cast<ContextAlgorithm>(best - plan.seconds.begin() + 1);
    }
    plan.algorithm = algorithm;
    const auto rank = static_cast<size_t>(problem_.rank);
    plan.rows_q = shards_.rows_q[rank];
    plan.rows_kv = shards_.rows_kv[rank];
    plan.pieces_q = shards_.pieces_q;
    plan.pieces_kv = shards_.pieces_kv;
    int64_t rows = plan.rows_q;
    if (algorithm == ContextAlgorithm::ring) {
      for (size_t i = 0; i < distances_.size(); ++i) plan.steps.push_back(ring_step(i));
    } else {
      ContextStep& step = plan.steps.emplace_back();
      const bool whole = algorithm == ContextAlgorithm::ulysses;
      if (whole) rows = total(problem_.seqlens_q);
      for_each_whole(problem_.rank, whole, [&](const std::vector<Block>& blocks) {
        context::add_to_calls(blocks, step.calls);
      });
    }
    plan.initialise = !first_call_covers(plan.steps.front(), rows);
    return plan;
  }

 private:
  int32_t at(int64_t rank) const { return static_cast<int32_t>((rank % world_ + world_) % world_); }

  int64_t offset(size_t document) const {
    if (problem_.alignment == Alignment::top_left) return 0;
    return problem_.seqlens_kv[document] - problem_.seqlens_q[document];
  }

  static int64_t total(const std::vector<int64_t>& lengths) {
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }

  // Calls visit(blocks) for each document: the queries of one rank against the keys of another.
  template <class Visit>
  void for_each_pair(int64_t rank, int64_t owner, const Visit& visit) const {
    const auto& mine = shards_.documents[static_cast<size_t>(rank)];
    const auto& theirs = shards_.documents[static_cast<size_t>(owner)];
    for (size_t i = 0; i < mine.size(); ++i) {
      visit(context::blocks_of(mine[i].q, theirs[i].kv, band_, offset(i)));
    }
  }

  // As for_each_pair, against all keys; the queries are the rank's, or all.
  template <class Visit>
  void for_each_whole(int64_t rank, bool all_queries, const Visit& visit) const {
    int64_t begin_q = 0;
    int64_t begin_kv = 0;
    for (size_t i = 0; i < problem_.seqlens_q.size(); ++i) {
      const Piece q{0, begin_q, problem_.seqlens_q[i]};
      const Piece kv{0, begin_kv, problem_.seqlens_kv[i]};
      const std::vector<Piece> mine =
          all_queries ? std::vector<Piece>{q} : shards_.documents[static_cast<size_t>(rank)][i].q;
      if (kv.rows > 0 && q.rows > 0) {
        visit(context::blocks_of(mine, {kv}, band_, offset(i)));
      }
      begin_q += q.rows;
      begin_kv += kv.rows;
    }
  }

  double pair_area(int64_t rank, int64_t owner) const {
    double sum = 0;
    for_each_pair(rank, owner, [&](const std::vector<Block>& blocks) {
      for (const Block& block : blocks) sum += context::area_of(block);
    });
    return sum;
  }

  // A block of K and V visits the ranks that see its keys, in the order of their distances after its owner. Distances
  // that no rank needs are left out.
  void find_route() {
    areas_.assign(static_cast<size_t>(world_ * world_), 0);
    std::vector<bool> used(static_cast<size_t>(world_), false);
    used[0] = true;
    for (int64_t owner = 0; owner < world_; ++owner) {
      for (int64_t distance = 0; distance < world_; ++distance) {
        const double area = pair_area(at(owner + distance), owner);
        areas_[static_cast<size_t>(owner * world_ + distance)] = area;
        if (area > 0) used[static_cast<size_t>(distance)] = true;
      }
    }
    for (int64_t distance = 0; distance < world_; ++distance) {
      if (used[static_cast<size_t>(distance)]) distances_.push_back(distance);
    }
  }

  int32_t owner_at(int64_t rank, size_t step) const { return at(rank - distances_[step]); }
  int32_t holder_at(int64_t owner, size_t step) const { return at(owner + distances_[step]); }
  double area(int64_t owner, size_t step) const {
    return areas_[static_cast<size_t>(owner * world_ + distances_[step])];
  }
  bool visits(int64_t owner, size_t step) const {
    return step == 0 || (step < distances_.size() && area(owner, step) > 0);
  }

  // A block that was nowhere in a step comes from its owner again.
  ContextStep ring_step(size_t i) const {
    const int32_t rank = problem_.rank;
    const int32_t owner = owner_at(rank, i);
    ContextStep step;
    if (visits(owner, i)) {
      step.owner = owner;
      for_each_pair(rank, owner, [&](const std::vector<Block>& blocks) {
        context::add_to_calls(blocks, step.calls);
      });
      const bool goes_on = visits(owner, i + 1);
      if (goes_on) step.send_to = holder_at(owner, i + 1);
      if (i > 0) step.gradient_to = goes_on ? step.send_to : owner;
    }
    if (!visits(rank, i) && visits(rank, i + 1)) step.send_own_to = holder_at(rank, i + 1);
    if (i > 0 && visits(rank, i) && !visits(rank, i + 1)) {
      step.gradient_home_from = holder_at(rank, i);
    }
    if (i + 1 < distances_.size()) {
      const int32_t next = owner_at(rank, i + 1);
      const bool was_there = visits(next, i);
      if (visits(next, i + 1)) {
        step.receive_from = was_there ? holder_at(next, i) : next;
        if (i > 0 && was_there) step.gradient_from = step.receive_from;
      }
    }
    return step;
  }

  static bool first_call_covers(const ContextStep& step, int64_t rows) {
    if (rows == 0) return true;
    if (step.calls.empty()) return false;
    const std::vector<ContextBlock>& blocks = step.calls.front().blocks;
    return blocks.front().q_begin == 0 && blocks.back().q_end == rows;
  }

  double seconds_of_pairs(double pairs) const {
    const auto elements = static_cast<double>(problem_.head_dim_qk + problem_.head_dim_v);
    const auto rows = static_cast<double>(problem_.batch * problem_.heads_q);
    return 2 * pairs * elements * rows / problem_.flops_per_second;
  }
  double seconds_of_rows(double rows, int64_t heads, int64_t elements) const {
    const auto each =
        static_cast<double>(problem_.batch * heads * elements * problem_.element_bytes);
    return rows * each / problem_.link_bytes_per_second;
  }
  double kv_seconds(int64_t rows, int64_t heads) const {
    return seconds_of_rows(static_cast<double>(rows), heads,
                           problem_.head_dim_qk + problem_.head_dim_v);
  }

  // A step takes as long as the longer of its calls and its transfers, on the slowest rank.
  double ring_seconds() const {
    double sum = 0;
    for (size_t i = 0; i < distances_.size(); ++i) {
      double slowest = 0;
      for (int64_t owner = 0; owner < world_; ++owner) {
        const int64_t rows = visits(owner, i + 1) ? shards_.rows_kv[static_cast<size_t>(owner)] : 0;
        slowest = std::max(
            {slowest, seconds_of_pairs(area(owner, i)), kv_seconds(rows, problem_.heads_kv)});
      }
      sum += slowest;
    }
    return sum;
  }

  // All transfers, then all calls of the slowest rank.
  double all_gather_seconds() const {
    std::vector<double> area(static_cast<size_t>(world_), 0);
    for (int64_t owner = 0; owner < world_; ++owner) {
      for (int64_t distance = 0; distance < world_; ++distance) {
        area[static_cast<size_t>(at(owner + distance))] +=
            areas_[static_cast<size_t>(owner * world_ + distance)];
      }
    }
    const int64_t largest = *std::max_element(shards_.rows_kv.begin(), shards_.rows_kv.end());
    return seconds_of_pairs(*std::max_element(area.begin(), area.end())) +
           static_cast<double>(world_ - 1) * kv_seconds(largest, problem_.heads_kv);
  }

  // Q, K and V to the others, an equal share of all pairs, and O back.
  double ulysses_seconds() const {
    if (!divides_heads(problem_)) return kImpossible;
    double area = 0;
    for (const double one : areas_) area += one;
    const auto share = static_cast<double>(world_);
    const auto rows_q =
        static_cast<double>(*std::max_element(shards_.rows_q.begin(), shards_.rows_q.end()));
    const int64_t rows_kv = *std::max_element(shards_.rows_kv.begin(), shards_.rows_kv.end());
    const int64_t heads_kv = std::max(problem_.heads_kv / world_, int64_t{1});
    return seconds_of_pairs(area / share) +
           (share - 1) * (seconds_of_rows(rows_q / share, problem_.heads_q,
                                          problem_.head_dim_qk + problem_.head_dim_v) +
                          kv_seconds(rows_kv, heads_kv));
  }

 public:
  static bool divides_heads(const ContextProblem& problem) {
    return problem.heads_q % problem.world == 0 &&
           (problem.heads_kv % problem.world == 0 || problem.world % problem.heads_kv == 0);
  }

 private:
  const ContextProblem& problem_;
  int64_t world_;
  Shards shards_;
  Band band_;
  std::vector<double> areas_;       // pairs, by owner of the keys and distance of the queries' rank
  std::vector<int64_t> distances_;  // of the steps
};

Status check_lengths(std::string_view name, const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > (int64_t{1} << 40) || sum > (int64_t{1} << 40)) {
      return invalid("{}: has {}, wanted lengths of 0 to 2^40, in all too", name, length);
    }
    sum += length;
  }
  return {};
}

Status check(const ContextProblem& problem) {
  constexpr int32_t kLargest = 4096;
  if (problem.world < 1 || problem.world > kLargest) {
    return invalid("world: is {}, wanted 1 to {}", problem.world, kLargest);
  }
  if (problem.rank < 0 || problem.rank >= problem.world) {
    return invalid("rank: is {}, wanted 0 to {}", problem.rank, problem.world - 1);
  }
  if (problem.layout != ContextLayout::contiguous && problem.layout != ContextLayout::zigzag) {
    return invalid("layout: is number {}, wanted 0 or 1", static_cast<int32_t>(problem.layout));
  }
  const auto algorithm = static_cast<int32_t>(problem.algorithm);
  if (algorithm < 0 || algorithm > static_cast<int32_t>(ContextAlgorithm::ulysses)) {
    return invalid("algorithm: is number {}, wanted 0 to 3", algorithm);
  }
  if (problem.alignment != Alignment::top_left && problem.alignment != Alignment::bottom_right) {
    return invalid("alignment: is number {}, wanted top_left or bottom_right",
                   static_cast<int32_t>(problem.alignment));
  }
  if (problem.seqlens_q.empty() || problem.seqlens_q.size() != problem.seqlens_kv.size()) {
    return invalid("seqlens_kv: has {} documents, wanted seqlens_q's {}, at least one",
                   problem.seqlens_kv.size(), problem.seqlens_q.size());
  }
  FLASHCORE_RETURN_IF_ERROR(check_lengths("seqlens_q", problem.seqlens_q));
  FLASHCORE_RETURN_IF_ERROR(check_lengths("seqlens_kv", problem.seqlens_kv));
  constexpr int64_t kLargestWindow = int64_t{1} << 32;
  for (const int64_t side : {problem.window_left, problem.window_right}) {
    if (side < -1 || side > kLargestWindow) {
      return invalid("window: has {}, wanted -1 to 2^32", side);
    }
  }
  if (problem.heads_kv < 1 || problem.heads_q < 1 || problem.heads_q % problem.heads_kv != 0) {
    return invalid("heads_kv: is {}, wanted a divisor of heads_q's {}", problem.heads_kv,
                   problem.heads_q);
  }
  if (problem.batch < 0 || problem.head_dim_qk < 1 || problem.head_dim_v < 1 ||
      problem.element_bytes < 1) {
    return invalid(
        "batch, head_dim_qk, head_dim_v, element_bytes: are {}, {}, {}, {}, wanted "
        "positive numbers",
        problem.batch, problem.head_dim_qk, problem.head_dim_v, problem.element_bytes);
  }
  if (!(problem.link_bytes_per_second > 0) || !(problem.flops_per_second > 0)) {
    return invalid("link_bytes_per_second, flops_per_second: are {} and {}, wanted above 0",
                   problem.link_bytes_per_second, problem.flops_per_second);
  }
  if (problem.algorithm == ContextAlgorithm::ulysses && !Planner::divides_heads(problem)) {
    return unsupported(
        "algorithm: ulysses has {} query heads and {} KV heads on {} ranks, wanted a multiple of "
        "the ranks, and KV heads that are a multiple or a divisor of them",
        problem.heads_q, problem.heads_kv, problem.world);
  }
  return {};
}

}  // namespace

Result<ContextPlan> make_context_plan(const ContextProblem& problem) {
  FLASHCORE_RETURN_IF_ERROR(check(problem));
  return Planner(problem).plan(problem.algorithm);
}

}  // namespace flashcore
