#include "bench/gate/gradient_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "bench/gate/lanes.hpp"
#include "cpu/parallel.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

template <class Naive>
GradientReference reference_of(const Sums<double>& right, const Sums<Naive>& naive, int64_t count,
                               double squared_terms) {
  GradientReference out;
  double square = 0;
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t d = 0; d < right.width(); ++d) {
      const double value = right.get(lane, d);
      out.values.push_back(value);
      square += value * value;
      out.naive_max_error = std::max(out.naive_max_error, std::abs(naive.get(lane, d) - value));
    }
  }
  out.norm_of_terms = std::sqrt(squared_terms);
  out.norm = std::max(std::sqrt(square), out.norm_of_terms);
  return out;
}

}  // namespace

// Queries of one head, one per lane, over the keys that any of them sees.
template <class Naive>
class GradientRows::Queries {
 public:
  Queries(const GradientRows& all, int64_t head, int64_t first, int64_t count)
      : a_(all),
        first_(all.row_number(head, first)),
        count_(count),
        range_(visible_keys(all.s_, all.p_.band, first, first + count)),
        o_(all.p_.head_dim_v) {
    for (int64_t lane = 0; lane < count; ++lane) {
      queries_.push_back({.batch = 0, .head = head, .query = first + lane, .q = {}, .q_scale = 1});
    }
  }

  // Computes probabilities, LSE and O.
  void find_outputs() {
    find_scores();
    for (int64_t lane = 0; lane < count_; ++lane) {
      const Softmax softmax = normalise(p_, lane, DType::f64);
      at(lse_, lane) = softmax.largest + std::log(softmax.sum);
      naive_[static_cast<size_t>(lane)] = normalise(naive_p_, lane, a_.intermediate_);
    }
    for (int64_t j = range_.begin; j < range_.end; ++j) {
      Lanes weights = of(p_, j);
      for (int64_t lane = 0; lane < count_; ++lane) at(weights, lane) *= kept(lane, j);
      o_.add(weights, a_.v_row(j));
    }
  }

  double lse(int64_t lane) const { return at(lse_, lane); }
  const Softmax& naive(int64_t lane) const { return naive_[static_cast<size_t>(lane)]; }
  std::vector<double> o(int64_t lane) const {
    std::vector<double> row;
    for (int64_t d = 0; d < o_.width(); ++d) row.push_back(o_.get(lane, d));
    return row;
  }

  double delta(int64_t lane) const {
    const double* const d_o = a_.d_o_row(first_ + lane);
    double sum = -a_.d_lse_[static_cast<size_t>(first_ + lane)];
    for (int64_t d = 0; d < o_.width(); ++d) sum += d_o[d] * o_.get(lane, d);
    return sum;
  }

  // Call after find_outputs().
  GradientReference dq() const {
    Lanes delta_of = {};
    for (int64_t lane = 0; lane < count_; ++lane) at(delta_of, lane) = delta(lane);
    const SideBySide<double> d_o(a_.d_o_row(first_), count_, a_.p_.head_dim_v);
    const SideBySide<Naive> naive_d_o(a_.d_o_row(first_), count_, a_.p_.head_dim_v);
    Sums<double> sums(a_.p_.head_dim_qk);
    Sums<Naive> naive_sums(a_.p_.head_dim_qk);
    const double scale = a_.p_.softmax_scale;
    double squares = 0;
    for (int64_t j = range_.begin; j < range_.end; ++j) {
      const Lanes dp = d_o.products(a_.v_row(j)), naive_dp = naive_d_o.products(a_.v_row(j));
      Lanes weights = {}, naive_weights = {};
      double terms = 0;
      for (int64_t lane = 0; lane < count_; ++lane) {
        const double p = at(of(p_, j), lane), factor = scale * at(of(slope_, j), lane);
        const double given = p * kept(lane, j) * at(dp, lane), taken = p * at(delta_of, lane);
        at(weights, lane) = (given - taken) * factor;
        terms += (given * given + taken * taken) * factor * factor;
        const double ds = round(at(of(naive_p_, j), lane) *
                                (kept(lane, j) * round(at(naive_dp, lane)) -
                                 a_.naive_delta_[static_cast<size_t>(first_ + lane)]));
        at(naive_weights, lane) = round(ds * at(of(naive_slope_, j), lane)) * scale;
      }
      sums.add(weights, a_.k_row(j));
      naive_sums.add(naive_weights, a_.k_row(j));
      squares += terms * cpu::dot(a_.k_row(j), a_.k_row(j), a_.p_.head_dim_qk);
    }
    return reference_of(sums, naive_sums, count_, squares);
  }

 private:
  double round(double value) const { return cpu::round_to(a_.intermediate_, value); }
  const cpu::QueryRow& query(int64_t lane) const { return queries_[static_cast<size_t>(lane)]; }
  double kept(int64_t lane, int64_t j) const { return a_.dropout_.of(query(lane), j); }
  Lanes& of(std::vector<Lanes>& keys, int64_t j) const {
    return keys[static_cast<size_t>(j - range_.begin)];
  }
  const Lanes& of(const std::vector<Lanes>& keys, int64_t j) const {
    return keys[static_cast<size_t>(j - range_.begin)];
  }

  // kRemovedPair for pairs that do not attend.
  void find_scores() {
    const auto keys = static_cast<size_t>(range_.size());
    for (auto* const by_key : {&p_, &slope_, &naive_p_, &naive_slope_}) {
      by_key->assign(keys, Lanes{});
    }
    const SideBySide<double> q(a_.q_row(first_), count_, a_.p_.head_dim_qk);
    const SideBySide<Naive> naive_q(a_.q_row(first_), count_, a_.p_.head_dim_qk);
    for (int64_t j = range_.begin; j < range_.end; ++j) {
      const Lanes product = q.products(a_.k_row(j));
      const Lanes naive = naive_q.products(a_.k_row(j));
      for (int64_t lane = 0; lane < count_; ++lane) {
        const KeyRange visible = visible_keys(a_.s_, a_.p_.band, query(lane).query);
        const bool is_visible = j >= visible.begin && j < visible.end;
        const auto score = [&](double value, double& slope) {
          if (!is_visible) return cpu::kRemovedPair;
          return cpu::score(a_.p_, a_.args_, a_.s_, a_.kv_, query(lane), j, value, &slope);
        };
        at(of(p_, j), lane) = score(at(product, lane), at(of(slope_, j), lane));
        at(of(naive_p_, j), lane) = round(score(at(naive, lane), at(of(naive_slope_, j), lane)));
      }
    }
  }

  // Turns the scores of a lane into probabilities.
  Softmax normalise(std::vector<Lanes>& keys, int64_t lane, DType intermediate) const {
    const double sink = a_.p_.sinks.present ? a_.args_.sinks[a_.p_.sinks.at(0, query(lane).head)]
                                            : cpu::kRemovedPair;
    double largest = sink;
    for (const Lanes& key : keys) largest = std::max(largest, at(key, lane));
    double sum = largest == cpu::kRemovedPair ? 0 : std::exp(sink - largest);
    for (Lanes& key : keys) {
      double& weight = at(key, lane);
      weight =
          weight == cpu::kRemovedPair
              ? 0
              : cpu::in_fp32(intermediate, std::exp(cpu::in_fp32(intermediate, weight - largest)));
      sum = cpu::in_fp32(intermediate, sum + weight);
    }
    for (Lanes& key : keys) {
      if (at(key, lane) != 0) at(key, lane) = cpu::round_to(intermediate, at(key, lane) / sum);
    }
    return {largest, sum};
  }

  const GradientRows& a_;
  int64_t first_, count_;  // rows
  KeyRange range_;
  std::vector<cpu::QueryRow> queries_;
  std::vector<Lanes> p_, slope_, naive_p_, naive_slope_;  // indexed by key of the range
  Lanes lse_ = {};
  std::array<Softmax, kLanes> naive_ = {};
  Sums<double> o_;
};

// Keys, one per lane, over the queries that see any of them.
template <class Naive>
class GradientRows::Keys {
 public:
  Keys(const GradientRows& all, int64_t first, int64_t count)
      : a_(all),
        first_(first),
        count_(count),
        k_(all.k_row(first), count, all.p_.head_dim_qk),
        v_(all.v_row(first), count, all.p_.head_dim_v),
        naive_k_(all.k_row(first), count, all.p_.head_dim_qk),
        naive_v_(all.v_row(first), count, all.p_.head_dim_v),
        dk_(all.p_.head_dim_qk),
        dv_(all.p_.head_dim_v),
        naive_dk_(all.p_.head_dim_qk),
        naive_dv_(all.p_.head_dim_v) {}

  std::pair<GradientReference, GradientReference> run() {
    for (int64_t head = 0; head < a_.p_.heads_q; ++head) {
      for (int64_t i = 0; i < a_.s_.len_q; ++i) {
        const KeyRange visible = visible_keys(a_.s_, a_.p_.band, i);
        if (visible.begin < first_ + count_ && visible.end > first_) add(head, i, visible);
      }
    }
    return {reference_of(dk_, naive_dk_, count_, squares_k_),
            reference_of(dv_, naive_dv_, count_, squares_v_)};
  }

 private:
  double round(double value) const { return cpu::round_to(a_.intermediate_, value); }

  void add(int64_t head, int64_t i, const KeyRange& visible) {
    const int64_t row = a_.row_number(head, i);
    const cpu::QueryRow query{.batch = 0, .head = head, .query = i, .q = {}, .q_scale = 1};
    const double lse = a_.row_lse_[static_cast<size_t>(row)];
    const double delta = a_.delta_[static_cast<size_t>(row)];
    const double naive_delta = a_.naive_delta_[static_cast<size_t>(row)];
    const double naive_largest = a_.naive_largest_[static_cast<size_t>(row)];
    const double naive_sum = a_.naive_sum_[static_cast<size_t>(row)];
    const double *const q = a_.q_row(row), *const d_o = a_.d_o_row(row);
    const Lanes qk = k_.products(q), dp = v_.products(d_o);
    const Lanes naive_qk = naive_k_.products(q), naive_dp = naive_v_.products(d_o);
    const double scale = a_.p_.softmax_scale;
    Lanes to_k = {}, to_v = {}, naive_to_k = {}, naive_to_v = {};
    double terms_k = 0, terms_v = 0;
    for (int64_t lane = 0; lane < count_; ++lane) {
      const int64_t j = first_ + lane;
      if (j < visible.begin || j >= visible.end) continue;
      double slope = 1, naive_slope = 1;
      const double score =
          cpu::score(a_.p_, a_.args_, a_.s_, a_.kv_, query, j, at(qk, lane), &slope);
      if (score == cpu::kRemovedPair) continue;
      const double naive_score = round(
          cpu::score(a_.p_, a_.args_, a_.s_, a_.kv_, query, j, at(naive_qk, lane), &naive_slope));
      const double kept = a_.dropout_.of(query, j);
      const double p = std::exp(score - lse);
      const double given = p * kept * at(dp, lane), taken = p * delta;
      at(to_v, lane) = p * kept;
      at(to_k, lane) = (given - taken) * scale * slope;
      terms_v += p * kept * p * kept;
      terms_k += (given * given + taken * taken) * scale * scale * slope * slope;
      const double weight = std::exp(cpu::in_fp32(a_.intermediate_, naive_score - naive_largest));
      const double naive_p = round(cpu::in_fp32(a_.intermediate_, weight) / naive_sum);
      const double ds = round(naive_p * (kept * round(at(naive_dp, lane)) - naive_delta));
      at(naive_to_v, lane) = round(naive_p * kept);
      at(naive_to_k, lane) = round(ds * naive_slope) * scale;
    }
    dv_.add(to_v, d_o);
    dk_.add(to_k, q);
    naive_dv_.add(naive_to_v, d_o);
    naive_dk_.add(naive_to_k, q);
    squares_v_ += terms_v * cpu::dot(d_o, d_o, a_.p_.head_dim_v);
    squares_k_ += terms_k * cpu::dot(q, q, a_.p_.head_dim_qk);
  }

  const GradientRows& a_;
  int64_t first_, count_;
  SideBySide<double> k_, v_;
  SideBySide<Naive> naive_k_, naive_v_;
  Sums<double> dk_, dv_;
  Sums<Naive> naive_dk_, naive_dv_;
  double squares_k_ = 0, squares_v_ = 0;
};

GradientRows::GradientRows(HostProblem forward, const ForwardProblem& resolved,
                           const HostTensor& d_o, const HostTensor* d_lse)
    : host_(std::move(forward)),
      p_(resolved),
      args_(host_.arguments()),
      s_(sequence_of(p_, args_, 0)),
      kv_(cpu::load_kv_head(p_, args_, s_, 0, 0)),
      dropout_(p_, args_),
      intermediate_(p_.dtype),
      q_(host_.at("q").values()),
      d_o_(d_o.values()),
      o_(contiguous(p_.o_dtype, std::span(host_.problem.o.shape))),
      lse_(contiguous(p_.lse_dtype, std::span(host_.problem.o.shape).first(3))) {
  // Rows past the keys in use are judged, too.
  kv_.k.resize(static_cast<size_t>(p_.seqlen_kv * p_.head_dim_qk), 0.0);
  kv_.v.resize(static_cast<size_t>(p_.seqlen_kv * p_.head_dim_v), 0.0);
  const auto rows = static_cast<size_t>(p_.heads_q * p_.seqlen_q);
  d_lse_ = d_lse == nullptr ? std::vector<double>(rows, 0.0) : d_lse->values();
  row_lse_.assign(rows, cpu::kRemovedPair);
  for (auto* const by_row : {&delta_, &naive_delta_, &naive_largest_, &naive_sum_}) {
    by_row->assign(rows, 0.0);
  }
}

void GradientRows::set_statistics(int64_t row, double lse, const double* o, const Softmax& naive) {
  const auto n = static_cast<size_t>(row);
  const int64_t width = p_.head_dim_v;
  row_lse_[n] = lse;
  naive_largest_[n] = naive.largest;
  naive_sum_[n] = naive.sum;
  lse_.set(row, lse);
  std::vector<double> rounded(static_cast<size_t>(width));
  for (int64_t d = 0; d < width; ++d) {
    o_.set(row * width + d, o[d]);
    rounded[static_cast<size_t>(d)] = o_.get(row * width + d);
  }
  delta_[n] = cpu::dot(d_o_row(row), o, width) - d_lse_[n];
  naive_delta_[n] =
      cpu::unfused_dot(intermediate_, d_o_row(row), rounded.data(), width) - d_lse_[n];
}

template <class Naive>
void GradientRows::find_in_fp64(int threads) {
  const int64_t blocks = (p_.seqlen_q + kLanes - 1) / kLanes;
  cpu::parallel_for(p_.heads_q * blocks, threads, [&](int64_t n) {
    const int64_t head = n / blocks, first = n % blocks * kLanes;
    const int64_t count = std::min(kLanes, p_.seqlen_q - first);
    Queries<Naive> queries(*this, head, first, count);
    queries.find_outputs();
    for (int64_t lane = 0; lane < count; ++lane) {
      set_statistics(row_number(head, first + lane), queries.lse(lane), queries.o(lane).data(),
                     queries.naive(lane));
    }
  });
}

Status GradientRows::find_in_fp32(int threads) {
  Problem problem = host_.problem;
  for (TensorDesc* const one : {&problem.q, &problem.k, &problem.v, &problem.o}) {
    *one = contiguous_like(*one, DType::f32);
  }
  problem.lse = contiguous(DType::f32, std::span(problem.o.shape).first(3));
  PlanOptions options;
  options.kernel = "cpu_simd";
  options.threads = threads;
  const Result<Plan> plan = make_plan(problem, options);
  if (!plan.ok()) return plan.status();
  std::map<std::string, HostTensor, std::less<>> fp32;
  for_each_tensor(problem, [&](std::string_view name, const TensorDesc& desc) {
    if (name != "o" && name != "lse" && name != "q" && name != "k" && name != "v") return;
    HostTensor& tensor = fp32.emplace(name, HostTensor(desc)).first->second;
    if (is_output(name)) return;
    const HostTensor& from = host_.at(name);
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, from.get(i));
  });
  Arguments args = args_;
  args.q = fp32.at("q").data();
  args.k = fp32.at("k").data();
  args.v = fp32.at("v").data();
  args.o = fp32.at("o").data();
  args.lse = fp32.at("lse").data();
  FLASHCORE_RETURN_IF_ERROR(plan->run(args));
  const std::vector<double> o = fp32.at("o").values();
  const HostTensor& lse = fp32.at("lse");
  cpu::parallel_for(p_.heads_q, threads, [&](int64_t head) {
    for (int64_t i = 0; i < p_.seqlen_q; ++i) {
      const int64_t row = row_number(head, i);
      set_statistics(row, lse.get(row), o.data() + row * p_.head_dim_v, {lse.get(row), 1});
    }
  });
  return {};
}

Result<GradientRows> GradientRows::make(HostProblem forward, const HostTensor& d_o,
                                        const HostTensor* d_lse, Statistics statistics,
                                        int threads) {
  const Result<ForwardProblem> resolved = resolve(forward.problem);
  if (!resolved.ok()) return resolved.status();
  GradientRows rows(std::move(forward), *resolved, d_o, d_lse);
  if (resolved->dtype == DType::f32) {
    rows.find_in_fp64<float>(threads);
  } else if (statistics == Statistics::fp64) {
    rows.find_in_fp64<double>(threads);
  } else if (Status status = rows.find_in_fp32(threads); !status.ok()) {
    return status;
  }
  return rows;
}

template <class Naive>
Result<GradientReference> GradientRows::dq_of(int64_t head, int64_t first, int64_t count) const {
  Queries<Naive> queries(*this, head, first, count);
  queries.find_outputs();
  const GateLimits fp32 = gate_limits(DType::f32);
  for (int64_t lane = 0; lane < count; ++lane) {
    const auto row = static_cast<size_t>(row_number(head, first + lane));
    const std::vector<double> o = queries.o(lane);
    double allowed = 0;  // error of delta, if every element of O is at its limit
    for (int64_t d = 0; d < p_.head_dim_v; ++d) {
      allowed += std::abs(d_o_row(static_cast<int64_t>(row))[d]) * fp32.max_scaled_error *
                 std::max(1.0, std::abs(o[static_cast<size_t>(d)]));
    }
    const double lse = queries.lse(lane);
    const bool same_lse = lse == row_lse_[row] || std::abs(lse - row_lse_[row]) <= fp32.lse_error;
    if (same_lse && std::abs(queries.delta(lane) - delta_[row]) <= allowed) continue;
    return Status(StatusCode::internal,
                  fmt::format("gate: query {} has LSE {} and delta {} in fp32, wanted {} and {}",
                              first + lane, row_lse_[row], delta_[row], lse, queries.delta(lane)));
  }
  return queries.dq();
}

Result<GradientReference> GradientRows::dq(int64_t head, int64_t first, int64_t count) const {
  return intermediate_ == DType::f32 ? dq_of<float>(head, first, count)
                                     : dq_of<double>(head, first, count);
}

std::pair<GradientReference, GradientReference> GradientRows::dk_dv(int64_t first,
                                                                    int64_t count) const {
  return intermediate_ == DType::f32 ? Keys<float>(*this, first, count).run()
                                     : Keys<double>(*this, first, count).run();
}

}  // namespace flashcore::bench
